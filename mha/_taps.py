"""The places inside a layer where a tensor can be watched or changed."""

from collections.abc import Callable

from torch import Tensor, nn


class Tap(nn.Identity):
    """A named place where a tensor passes by, unchanged, so that :func:`mha.watch` can see it."""

    @property
    def is_open(self) -> bool:
        """Whether somebody watches here."""
        return bool(self._forward_hooks)


def tapped(layer: nn.Module, how: dict) -> dict:
    """Add the layer's open taps to the edits; where none is open, nothing changes and the fused kernel runs."""
    for tap, edit in ((layer.at_scores, "edit_scores"), (layer.at_weights, "edit_weights")):
        how = followed_by(how, edit, tap) if tap.is_open else how
    return how


def followed_by(how: dict, edit: str, function: Callable[[Tensor], Tensor]) -> dict:
    """Add a function to an edit, behind what is there already."""
    before = how.get(edit)
    return how | {edit: function if before is None else lambda t: function(before(t))}
