"""The loop of side room 17c gives what flash-linear-attention writes out for GLA, RWKV-7 and linear attention."""

import importlib.util
from pathlib import Path

import nbformat
import pytest
import torch

ROOM = Path(__file__).resolve().parents[2] / "notebooks" / "17c_one_recurrence.ipynb"
WHERE = {
    "linear": ("linear_attn", "naive_recurrent_linear_attn"),
    "GLA": ("gla", "naive_recurrent_gla"),
    "RWKV-7": ("generalized_delta_rule/dplr", "dplr_recurrence"),
}


def written_out(name):
    """A function of the library in plain torch, whose file is read without the package: that asks for a GPU."""
    found = importlib.util.find_spec("fla")
    if found is None or importlib.util.find_spec("einops") is None:
        pytest.skip("flash-linear-attention is not installed: pip install -e '.[gpu]', on a GPU")
    folder, function = WHERE[name]
    path = Path(found.submodule_search_locations[0], "ops", folder, "naive.py")
    spec = importlib.util.spec_from_file_location("naive", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


@pytest.fixture
def room():
    """What the cells of the room have made when its loop is there."""
    torch.set_default_dtype(torch.float32)  # theirs is; another test may have changed it
    names = {"__name__": "room"}
    for cell in nbformat.read(ROOM, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
        if "loop" in names:
            return names
    raise AssertionError("the room has no function loop")


@pytest.mark.parametrize("name", WHERE)
def test_the_loop_is_what_the_library_writes_out(name, room):
    theirs = written_out(name)
    q, k, v, kappa, a, w, r = (room[one] for one in ("q", "k", "v", "kappa", "a", "w", "r"))
    q = q * q.shape[-1] ** 0.5  # they divide by it

    def shaped(x):
        return x[None, None] if name == "RWKV-7" else x[None, :, None]  # (batch, head, token, …), or token before head

    more = {"linear": [], "GLA": [a.log()], "RWKV-7": [kappa, -r * kappa, w.log()]}[name]
    found, _ = theirs(*map(shaped, (q, k, v, *more)))
    assert (found.flatten(0, 2) - room["loop"](name)).abs().max() < 1e-5
    assert found.abs().max() > 0.1
