"""The leak detector: which outputs depend on which inputs.

:Taught in: masking.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import checked

Trial = Callable[[Tensor], Tensor]


@checked
def as_double(layer: nn.Module, x: Tensor, kwargs: dict) -> tuple[nn.Module, Tensor, dict]:
    """Copy a module and set it, its input and every mask of numbers to float64, where a small leak still shows.

    :param layer: the module; it stays as it is.
    :param x: its input, of any floating type.
    :param kwargs: further keywords of the layer, by name.
    """
    try:
        layer = copy.deepcopy(layer).double()
    except Exception as error:
        raise ValueError(
            f"{type(layer).__name__} cannot be copied ({error}): pass a function instead, "
            "lambda x: layer(x), once after layer.train() and once after layer.eval()"
        ) from error
    device = next((p.device for p in layer.parameters()), x.device)
    numbers = {name: k for name, k in kwargs.items() if isinstance(k, Tensor) and k.is_floating_point()}
    return layer, x.to(device, torch.float64), kwargs | {name: k.double() for name, k in numbers.items()}


@checked
def in_mode(layer: nn.Module, mode: str, kwargs: dict) -> Trial:
    """Call a module in training or in evaluation mode.

    :param layer: the module.
    :param mode: "train" or "eval".
    :param kwargs: further keywords of the layer, by name.
    """
    if mode not in ("train", "eval"):
        raise ValueError(f"mode {mode!r}: give 'train', 'eval' or both; for 'cached' give cache=")
    return lambda x: layer.train(mode == "train")(x, **kwargs)


@checked
def in_chunks(layer: Callable, n: int, cache: Callable, chunks: tuple[int, ...] | None, kwargs: dict) -> Trial:
    """Feed a sequence piece by piece through a layer with a new cache.

    :param layer: a module or a function, called as ``layer(chunk, cache=…)``.
    :param n: how many positions the sequence has.
    :param cache: a function that makes an empty cache.
    :param chunks: how many positions each piece has, n in all; one of 2 and then single ones where it is None.
    :param kwargs: further keywords of the layer, by name.
    """
    chunks = (min(2, n),) + (1,) * (n - 2) if chunks is None else tuple(chunks)
    if sum(chunks) != n or min(chunks, default=0) < 1:
        raise ValueError(f"chunks {chunks} add up to {sum(chunks)}, but the sequence has {n} positions to cut up")

    def feed(x: Tensor) -> Tensor:
        if isinstance(layer, nn.Module):
            layer.eval()
        memory = cache()
        return torch.cat([layer(chunk, cache=memory, **kwargs) for chunk in x.split(chunks, dim=1)], dim=1)

    return feed


@checked
def influence(trial: Trial, x: Float[Tensor, "b n *m"]) -> Bool[Tensor, "n n"]:
    """Change one position after the other, by a little and by a lot, and see where the output moves.

    :param trial: a function from x to outputs (b, n, …).
    :param x: ordinary input, (b, n, …).
    """
    n = x.shape[1]
    before = _first(trial, x)
    eps = torch.finfo(before.dtype).eps if before.is_floating_point() else 0.0
    before = before.double()
    said = _largest(before).isfinite()
    tolerance = min(1e3 * eps, eps**0.5) * _largest(before)  # of each row; with few bits 1000 · eps would hide much
    sees = torch.zeros(n, n, dtype=torch.bool)
    for j in range(n):
        for size in (0.5, 1.0, 30.0):
            changed = x.clone()
            noise = torch.randn(x[:, j].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(j))
            changed[:, j] = (size * noise).to(x)
            moved = _largest(_run(trial, changed).double() - before)
            sees[:, j] |= (~(moved <= tolerance) & said).cpu()  # a NaN counts as moved
    if not said.all() and not sees.triu(1).any():
        raise ValueError(
            f"outputs {(~said).nonzero().flatten().tolist()} are NaN or infinite for ordinary input, so nothing can be "
            "said about them; no other output sees the future"
        )
    return sees


def _first(trial: Trial, x: Tensor) -> Tensor:
    """Run a trial once on plain input, and refuse what cannot be compared."""
    given = f"{x.dtype} input of shape {tuple(x.shape)}"
    try:
        before = _run(trial, x)
    except Exception as error:
        raise ValueError(
            f"the layer cannot be called with {given}: {type(error).__name__}: {error}. Keywords that it needs can be "
            "given to leaks; for other widths or number types pass a function and its own x"
        ) from error
    if not isinstance(before, Tensor):
        raise TypeError(
            f"the layer returned a {type(before).__name__}, but one tensor is needed: pass a function that picks "
            "it, such as lambda x: layer(x)[0], or a small module around the layer"
        )
    if before.ndim < 2 or before.shape[:2] != x.shape[:2]:
        raise ValueError(f"{given} gave output {tuple(before.shape)}: one row for each input is needed")
    if not torch.allclose(before, _run(trial, x), rtol=0, atol=0, equal_nan=True):
        raise ValueError("the layer answers the same input differently, even from the same random state")
    return before


def _run(trial: Trial, x: Tensor) -> Any:
    with torch.no_grad(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        return trial(x.clone())


def _largest(x: Tensor) -> Float[Tensor, "n"]:
    """Return the largest absolute number at each position; a NaN is larger than all."""
    return x.abs().transpose(0, 1).flatten(1).amax(1)


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


@checked
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

    A module is copied and set to float64; a function is tried as it is. Dropout is no obstacle: every trial starts from
    the same random state. With a cache the sequence is also fed in chunks through ``layer(chunk, cache=…)``, and the
    mode "cached" says what that sees.

    :param layer: any callable from (b, n, m) to (b, n, …), your own or another library's.
    :param x: the input, (b, n, m); random numbers unless given.
    :param shape: of the random numbers, (b, n, m); (2, 6, 8) unless given.
    :param modes: in which modes a module is tried; "train" and "eval" unless given.
    :param cache: a function that makes an empty cache; the mode "cached" is left out unless given.
    :param chunks: how many positions are fed at a time in the mode "cached", n in all; 2 and then 1 each unless given.
    :param kwargs: go to the layer.
    :Raises: ValueError where the layer cannot be copied or called, the chunks do not add up to n, the output has no row
        for each input, the layer answers the same input differently, or some outputs are NaN and no other one leaks
        (then nothing can be said); TypeError where it returns no tensor, or the input is not floating point.
    :Taught in: masking.
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
        raise TypeError(f"x has dtype {x.dtype}, but must be floating point: pass the part after the embedding")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}, but must be (batch, sequence, channels), none of them empty")
