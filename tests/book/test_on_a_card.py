"""Chapters 05, 13 and 16 on a GPU: their cells run with CUDA as the default device, and every assertion in them holds.

Without a GPU the same helper runs them on the processor. Two things are done for a cell that a reader would do by hand:
what goes to NumPy is copied to the processor first, and a generator is made on the device.
"""

import contextlib
import json

import matplotlib.pyplot as plt
import pytest
import torch
from chapters import NOTEBOOKS

CHAPTERS = {path.stem[:2]: path for path in NOTEBOOKS.glob("*.ipynb") if path.stem[:3] in ("05_", "13_", "16_")}
CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")


def cells(path):
    """The code of a notebook up to its exercises, cell by cell."""
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and "## Exercises" in source:
            return
        if cell["cell_type"] == "code":
            yield source


@contextlib.contextmanager
def on(device):
    """Make new tensors there, and let NumPy read them."""
    to_numpy, to_array, dtype = torch.Tensor.numpy, torch.Tensor.__array__, torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(torch.Tensor, "numpy", lambda x, **how: to_numpy(x.cpu(), **how))
        patch.setattr(torch.Tensor, "__array__", lambda x, *how, **more: to_array(x.cpu(), *how, **more))
        torch.set_default_device(device)
        try:
            yield
        finally:
            torch.set_default_device(None)
            torch.set_default_dtype(dtype)
            plt.close("all")


def run(sources, device):
    """Execute cells one after the other in one name space, which is returned; a failure names its cell."""
    names = {"__name__": "__main__"}
    with on(device):
        for number, source in enumerate(sources, 1):
            source = source.replace("torch.Generator()", f"torch.Generator({device!r})")
            try:
                exec(compile(source, f"cell {number}", "exec"), names)
            except Exception as error:
                raise AssertionError(f"code cell {number} on {device}: {error!r}\n{source}") from error
    return names


def devices(names):
    """Where the parameters of all layers are that the cells have made."""
    layers = [one for one in names.values() if isinstance(one, torch.nn.Module)]
    return {weight.device.type for layer in layers for weight in layer.parameters()} - {"meta"}


@CARD
@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_a_chapter_runs_on_a_gpu(chapter, reader):
    assert devices(run(cells(CHAPTERS[chapter]), "cuda")) == {"cuda"}


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ["05", "13", "16"])
def test_the_same_cells_run_on_the_processor(chapter, reader):
    sources = list(cells(CHAPTERS[chapter]))
    assert len(sources) > 25
    assert devices(run(sources, "cpu")) == {"cpu"}


def test_a_cell_that_names_another_device_is_found():
    fine = "import torch\nlayer = torch.nn.Linear(2, 2)\ntorch.ones(2).numpy()"
    assert devices(run([fine], "cpu")) == {"cpu"}
    wrong = "assert (layer(torch.ones(2)) - torch.ones(2, device='meta')).sum() == 0"
    with pytest.raises(AssertionError, match="code cell 2 on cpu"):
        run([fine, wrong], "cpu")
    assert torch.ones(1).device.type == "cpu"


def test_new_tensors_and_generators_are_made_on_the_device():
    names = run(["import torch", "x = torch.ones(2)", "layer = torch.nn.Linear(2, 2)"], "meta")
    assert {names["x"].device.type, names["layer"].weight.device.type} == {"meta"}
    assert run(["import torch", "g = torch.Generator()"], "cpu")["g"].device.type == "cpu"
    with pytest.raises(AssertionError, match="code cell 2 on meta"):  # there is no generator without numbers
        run(["import torch", "g = torch.Generator()"], "meta")
    assert torch.ones(2).device.type == "cpu"
