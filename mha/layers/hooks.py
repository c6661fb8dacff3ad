"""Look inside a layer, or change what passes there, without touching the layer.

:Taught in: split_and_merge, output_projection, reading_heads.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from mha.checks import checked
from mha.functional.core import NO_CHANGES, Change, Changes, changed


class Tap(nn.Identity):
    """A named point where a tensor passes by, unchanged, so that :func:`mha.watch` can see it."""

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
    :Raises: ValueError where the model has no such place.
    :Taught in: split_and_merge, reading_heads.
    """
    seen, order = Seen(), _taps(model, places or PLACES)

    def remember(path: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            seen[path] = output.detach() if detach else output

        return hook

    with ExitStack() as stack:
        for path, tap in order.items():
            stack.callback(tap.register_forward_hook(remember(path)).remove)
        yield seen


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
    :Raises: ValueError where the model has no such place, or a function returns another shape.
    :Taught in: output_projection, reading_heads, pruning_heads.
    """
    places = {"scores": scores, "weights": weights, "heads": heads, "gates": gates, "probabilities": probabilities}
    edits = {place: function for place, function in places.items() if function is not None}
    with ExitStack() as stack:
        for place, function in edits.items():
            for tap in _taps(model, (place,)).values():
                stack.callback(tap.register_forward_hook(partial(_change, place, function)).remove)
        yield


def _change(place: str, function: Change, _module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    return changed(place, function, output)


def _taps(model: nn.Module, places: tuple[str, ...]) -> dict[str, Tap]:
    named = {path: module for path, module in model.named_modules() if isinstance(module, Tap)}
    taps = {re.sub(r"(^|\.)at_(?=\w+$)", r"\1", path): tap for path, tap in named.items()}
    known = {path.rpartition(".")[2] for path in taps}
    if missing := sorted(set(places) - known):
        there = sorted(known) if known else "none, because there is no layer with heads in it"
        raise ValueError(f"{type(model).__name__} has no place named {missing}: its places are {there}")
    return {path: tap for path, tap in taps.items() if path.rpartition(".")[2] in places}
