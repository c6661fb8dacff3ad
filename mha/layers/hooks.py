"""Look inside a layer, or change what passes there, without touching the layer.

:Taught in: split_and_merge, output_projection, reading_heads.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from mha.checks import checked
from mha.functional.core import NO_CHANGES, Change, Changes, changed


class Tap(nn.Identity):
    """A named point where a tensor passes by, unchanged, so that :func:`mha.watch` can see it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tap":
        """Copy the point, not those who watch it: they watch the old layer."""
        return type(self)().train(self.training)

    @property
    def is_open(self) -> bool:
        """Whether this point is watched."""
        return bool(self._forward_hooks)


def watchers(scores: Tap, weights: Tap) -> Changes:
    """Return what those do who watch two taps; where nobody does, nothing changes and the fused kernel runs.

    :param scores: where the scores pass.
    :param weights: where the weights pass.
    """
    if not (scores._forward_hooks or weights._forward_hooks):
        return NO_CHANGES
    return Changes(scores=scores if scores.is_open else None, weights=weights if weights.is_open else None)


PLACES = ("scores", "weights", "heads")


class Seen(dict[str, Tensor]):
    """What a watcher saw: the last tensor of each tap, by its path, such as ``"encoder.0.attention.weights"``.

    ``seen.weights`` is the tensor of the only layer watched; ``seen.all("weights")`` lists them, layer by layer.
    """

    def all(self, place: str) -> list[Tensor]:
        """List what passed at ``place`` in every layer, first layer first.

        :param place: "scores", "weights", "heads", or another place of a layer, such as "gates".
        """
        return [tensor for path, tensor in self.items() if path.rpartition(".")[2] == place]

    def __getattr__(self, place: str) -> Tensor:
        found = self.all(place)
        if len(found) != 1:
            raise AttributeError(
                f"{len(found)} tensors passed at {place!r}, not one. Seen: {sorted(self) or 'nothing: call the layer'}"
            )
        return found[0]


@checked
@contextmanager
def watch(model: nn.Module, *places: str, detach: bool = True) -> Iterator[Seen]:
    """See the scores (before the mask), the weights (before dropout) and the heads of every layer in a model.

    While scores or weights are watched, the explicit formula runs instead of the fused kernel; the numbers are
    the same.

    A layer that is called several times, for example when all layers share their parameters (ALBERT), is seen as in its
    last call.

    :param model: any module with heads in it; it may be a layer itself.
    :param places: "scores", "weights", "heads", or another place of a layer, such as "gates"; the first three unless
        given.
    :param detach: whether what is seen has no gradients.
    :Shapes: scores and weights (b, h, i, j), heads (b, h, i, d).
    :Raises: ValueError where the model has no such place; RuntimeError at the end where nothing was seen.
    :Taught in: split_and_merge, reading_heads.
    """
    seen, order = Seen(), _taps(model, places or PLACES)

    def remember(path: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            seen[path] = output.detach() if detach else output

        return hook

    with ExitStack() as stack:
        calls = _calls(stack, model)
        for path, tap in order.items():
            stack.callback(tap.register_forward_hook(remember(path)).remove)
        yield seen
    if not seen and not calls:
        refuse_silence("nothing was seen")


@checked
@contextmanager
def edit(
    model: nn.Module,
    *,
    scores: Change | None = None,
    weights: Change | None = None,
    heads: Change | None = None,
    gates: Change | None = None,
    probabilities: Change | None = None,
) -> Iterator[None]:
    """Change what passes at a place: ``with edit(layer, heads=lambda z: z * keep): …``.

    :param model: any module with heads in it; it may be a layer itself.
    :param scores: changes the scores before the mask, (b, h, i, j); nothing changes unless given, here and below.
    :param weights: changes the weights before dropout, (b, h, i, j).
    :param heads: changes the head outputs, (b, h, i, d).
    :param gates: changes the gates, which gated and routed layers have.
    :param probabilities: changes those of a router, (b, routed heads, i), which only routed layers have.
    :Shapes: each function takes and returns a tensor of the shape that :func:`watch` shows there.
    :Raises: ValueError where the model has no such place, or a function returns another shape; RuntimeError at the end
        where no function was called, and where a checkpoint will compute a layer again when the edit is over.
    :Taught in: output_projection, reading_heads, pruning_heads.
    """
    places = {"scores": scores, "weights": weights, "heads": heads, "gates": gates, "probabilities": probabilities}
    edits = {place: function for place, function in places.items() if function is not None}
    ran = _Ran()
    with ExitStack() as stack:
        calls = _calls(stack, model)
        for place, function in edits.items():
            for tap in _taps(model, (place,)).values():
                stack.callback(tap.register_forward_hook(partial(ran.change, place, function)).remove)
        yield
    if edits and not ran.times and not calls:
        refuse_silence(f"the edit of {', '.join(edits)} never ran")
    if ran.waiting > 0:
        raise RuntimeError(
            "a layer was edited under gradient checkpointing, and its backward pass is still to come: it would compute "
            "the layer again without the edit, and give wrong gradients. Call backward() inside the with"
        )


class _Ran:
    """Count how often an edit ran, and how many runs a checkpoint will repeat in its backward pass."""

    def __init__(self) -> None:
        self.times = self.waiting = 0

    def change(self, place: str, function: Change, _module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        """Change what passes; a forward hook."""
        self.times += 1
        if not torch.compiler.is_compiling():
            self.waiting += _repeated_later()
        return changed(place, function, output)


def _repeated_later() -> int:
    """Return 1 in a call that a checkpoint will repeat, −1 in its repetition, 0 in any other."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename == checkpoint.__file__:
            if code.co_name in ("unpack_hook", "backward"):
                return -1
            if code.co_name == "forward" and "ctx" in frame.f_locals:  # the kind that runs without gradients
                return int(any(frame.f_locals["ctx"].needs_input_grad))
            if code.co_name == "checkpoint":
                return int(torch.is_grad_enabled())
        frame = frame.f_back
    return 0


def _calls(stack: ExitStack, model: nn.Module) -> list[bool]:
    """Return a list with an entry for each call of a model of which nothing is compiled: what such a call did not show,
    such as attention in the first step of a feedback model, it did not do.
    """
    calls: list[bool] = []

    def note(*_: Any) -> None:
        if not any(one._compiled_call_impl is not None for one in model.modules()):
            calls.append(True)

    stack.callback(model.register_forward_pre_hook(note).remove)
    return calls


def refuse_silence(what: str) -> NoReturn:
    """Say that hooks were never called.

    :param what: what did not happen.
    """
    raise RuntimeError(
        f"{what}: no layer ran past its taps. Call the model inside the with. A compiled model does not see hooks that "
        'come after its first call: compile it inside the with, or take torch.compiler.set_stance("force_eager")'
    )


def _taps(model: nn.Module, places: tuple[str, ...]) -> dict[str, Tap]:
    named = {path: module for path, module in model.named_modules() if isinstance(module, Tap)}
    taps = {re.sub(r"(^|\.)at_(?=\w+$)", r"\1", path): tap for path, tap in named.items()}
    known = {path.rpartition(".")[2] for path in taps}
    if missing := sorted(set(places) - known):
        there = sorted(known) if known else "none, because there is no layer with heads in it"
        raise ValueError(f"{type(model).__name__} has no place named {missing}: its places are {there}")
    return {path: tap for path, tap in taps.items() if path.rpartition(".")[2] in places}
