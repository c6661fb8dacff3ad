"""The leak detector: which outputs depend on which inputs. Public as :func:`mha.masks.leaks`."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


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
    Raises: ValueError where the chunks do not add up to n, the output has no row for each input, or the layer
        answers the same input differently (then nothing can be said).
    Taught in: chapter 03.
    """
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) if x is None else x.detach()
    trials = {"function": lambda t: layer(t, **kwargs)}
    if isinstance(layer, nn.Module):
        layer = copy.deepcopy(layer).double()
        x = x.double()
        trials = {mode: _in_mode(layer, mode, kwargs) for mode in modes}
    if cache is not None:
        trials["cached"] = _in_chunks(layer, cache, chunks or (2,) + (1,) * (x.shape[1] - 2), kwargs)
    return Leaks({mode: _influence(trial, x) for mode, trial in trials.items()})


def _influence(function: Callable[[Tensor], Tensor], x: Tensor) -> Bool[Tensor, "n n"]:
    """Change one position after the other, by a little and by a lot, and see where the output moves."""
    n = x.shape[1]
    before = _run(function, x)
    if before.ndim < 2 or before.shape[:2] != x.shape[:2]:
        raise ValueError(f"input {tuple(x.shape)} gave output {tuple(before.shape)}: one row for each input is needed")
    if not torch.equal(before, _run(function, x)):
        raise ValueError("the layer answers the same input differently, even from the same random state")
    sees = torch.zeros(n, n, dtype=torch.bool)
    tolerance = 1e3 * torch.finfo(before.dtype).eps * before.abs().max().clamp_min(1)
    for j in range(n):
        for size in (0.5, 1.0, 30.0):
            changed = x.clone()
            changed[:, j] = size * torch.randn(x[:, j].shape, dtype=x.dtype, generator=torch.Generator().manual_seed(j))
            moved = (_run(function, changed) - before).abs().flatten(2).amax((0, 2))
            sees[:, j] |= ~(moved <= tolerance)  # a NaN counts as moved
    return sees


def _run(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return function(x.clone())


def _in_mode(layer: nn.Module, mode: str, kwargs: dict) -> Callable[[Tensor], Tensor]:
    if mode not in ("train", "eval"):
        raise ValueError(f"mode {mode!r}: give 'train', 'eval' or both; for 'cached' give cache=")
    return lambda x: layer.train(mode == "train")(x, **kwargs)


def _in_chunks(layer: Callable, cache: Callable, chunks: tuple[int, ...], kwargs: dict) -> Callable[[Tensor], Tensor]:
    def feed(x: Tensor) -> Tensor:
        if sum(chunks) != x.shape[1]:
            raise ValueError(f"chunks {chunks} add up to {sum(chunks)}, but the sequence has {x.shape[1]} positions")
        if isinstance(layer, nn.Module):
            layer.eval()
        memory = cache()
        return torch.cat([layer(chunk, cache=memory, **kwargs) for chunk in x.split(chunks, dim=1)], dim=1)

    return feed
