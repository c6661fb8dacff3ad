"""The leak detector: which outputs depend on which inputs. Public as :func:`mha.masks.leaks`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha._influence import as_double, in_chunks, in_mode, influence


@dataclass(frozen=True)
class Leaks:
    """Which output depends on which input, for each mode that was tried.

    ``sees[mode][i, j]`` says whether output i changes with input j. The report counts as true where an output
    depends on a later input.
    """

    sees: dict[str, Bool[Tensor, "n n"]]

    @property
    def pairs(self) -> dict[str, list[tuple[int, int]]]:
        """The pairs (output, later input) that leak, by mode."""
        return {mode: [tuple(p) for p in sees.triu(1).nonzero().tolist()] for mode, sees in self.sees.items()}

    @property
    def blind(self) -> dict[str, list[tuple[int, int]]]:
        """The pairs (output, input not later) without influence, by mode: a causal layer should have none."""
        return {mode: [tuple(p) for p in (~sees).tril().nonzero().tolist()] for mode, sees in self.sees.items()}

    def __bool__(self) -> bool:
        return any(self.pairs.values())

    def __str__(self) -> str:
        lines = []
        for mode, pairs in self.pairs.items():
            lines += [] if pairs else [f"{mode}: no output depends on a later input"]
            for i in sorted({i for i, _ in pairs}):
                lines.append(
                    f"{mode}: output {i} depends on later input {', '.join(str(j) for k, j in pairs if k == i)}"
                )
        return "\n".join(lines)

    __repr__ = __str__


def leaks(
    layer: Callable[..., Tensor],
    x: Float[Tensor, "b n m"] | None = None,
    *,
    shape: tuple[int, int, int] = (2, 6, 8),
    modes: tuple[str, ...] = ("train", "eval"),
    cache: Callable | None = None,
    chunks: tuple[int, ...] | None = None,
    **kwargs,
) -> Leaks:
    """Say which outputs see the future: change one input position, look which output positions change.

    Works on any callable from (b, n, m) to (b, n, …), your own or another library's. A module is copied, set to
    float64 and tried in training and in evaluation mode; a function is tried as it is. Dropout is no obstacle: every
    trial starts from the same random state. With ``cache`` (a function that makes an empty cache) the sequence is
    also fed in ``chunks`` through ``layer(chunk, cache=…)``, and the mode "cached" says what that sees.

    Shapes: x (b, n, m), or random numbers of ``shape``; further keywords go to the layer.
    Raises: ValueError where the layer cannot be copied or called, the chunks do not add up to n, the output has no row
        for each input, the layer answers the same input differently, or some outputs are NaN and no other one leaks
        (then nothing can be said); TypeError where it returns no tensor, or the input is not floating point.
    Taught in: chapter 03.
    """
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) if x is None else x.detach()
    _check(x)
    trials = {"function": lambda t: layer(t, **kwargs)}
    if isinstance(layer, nn.Module):
        layer, x, kwargs = as_double(layer, x, kwargs)
        trials = {mode: in_mode(layer, mode, kwargs) for mode in modes}
    if cache is not None:
        trials["cached"] = in_chunks(layer, x.shape[1], cache, chunks, kwargs)
    return Leaks({mode: influence(trial, x) for mode, trial in trials.items()})


def _check(x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"x has dtype {x.dtype}, but must be floating point: hand over the part after the embedding")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}, but must be (batch, sequence, channels), none of them empty")
