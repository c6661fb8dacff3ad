"""The table of what converts: library, class, options, and the largest error, measured when it is made.

Taught in: chapter 07.
"""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from mha.interop.cases import Case, torch_cases
from mha.interop.cases_transformers import transformers_cases


@dataclass(frozen=True)
class Row:
    """One line of the table: how far our numbers are from the library's, and whether weights come back unchanged.

    ``error`` is the largest difference of the two outputs, divided by the largest output, in float64, over both
    directions: their weights in our layer, and our weights in their module.

    Taught in: chapter 07.
    """

    library: str
    module: str
    options: str
    error: float
    round_trip: bool

    def __str__(self) -> str:
        error = "< 1e-10" if self.error < 1e-10 else f"{self.error:.0e}"
        same = "bit-identical" if self.round_trip else "CHANGED"
        return f"{self.library:<13} {self.module:<22} {self.options:<44} {error:<8} {same}"


def interop_table() -> list[Row]:
    """Convert modules of every known class there and back, and measure the errors.

    The modules have random weights, so no network is needed. Without ``transformers`` the table holds torch only.

    Taught in: chapter 07.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [_measured(case) for case in _cases()]


def _cases() -> Iterator[Case]:
    yield from torch_cases()
    if find_spec("transformers") is not None:
        with warnings.catch_warnings():  # in a notebook without ipywidgets, the progress bars that it imports complain
            warnings.simplefilter("ignore")
            import_module("tqdm.auto")
        yield from transformers_cases()


@torch.no_grad()
def _measured(case: Case) -> Row:
    """Read random weights, then write other random weights, and compare outputs both times."""
    module = _random(case.make())
    layer = case.read(module)
    error = _distance(case.ours(layer), case.theirs(module))
    new = _random(copy.deepcopy(layer))
    written = case.write(new, copy.deepcopy(module))
    error = max(error, _distance(case.ours(new), case.theirs(written)))
    before, after = new.state_dict(), case.read(written).state_dict()
    same = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    return Row(case.library, case.name, case.options, error, same)


def _random(module: nn.Module) -> nn.Module:
    """Give every weight a random number, so that no bias of 0 hides a mistake."""
    module = module.double().eval()
    for weight in module.parameters():
        weight.copy_(0.3 * torch.randn_like(weight))
    return module


def _distance(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()
