"""How the leak detector looks: change one input position, run again, see which output positions move."""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Trial = Callable[[Tensor], Tensor]


def as_double(layer: nn.Module, x: Tensor, kwargs: dict) -> tuple[nn.Module, Tensor, dict]:
    """Copy a module and set it, its input and every mask of numbers to float64, where a small leak still shows."""
    try:
        layer = copy.deepcopy(layer).double()
    except Exception as error:
        raise ValueError(
            f"{type(layer).__name__} cannot be copied ({error}): hand over a function instead, "
            "lambda x: layer(x), once after layer.train() and once after layer.eval()"
        ) from error
    device = next((p.device for p in layer.parameters()), x.device)
    numbers = {name: k for name, k in kwargs.items() if isinstance(k, Tensor) and k.is_floating_point()}
    return layer, x.to(device, torch.float64), kwargs | {name: k.double() for name, k in numbers.items()}


def in_mode(layer: nn.Module, mode: str, kwargs: dict) -> Trial:
    """Call a module in training or in evaluation mode."""
    if mode not in ("train", "eval"):
        raise ValueError(f"mode {mode!r}: give 'train', 'eval' or both; for 'cached' give cache=")
    return lambda x: layer.train(mode == "train")(x, **kwargs)


def in_chunks(layer: Callable, n: int, cache: Callable, chunks: tuple[int, ...] | None, kwargs: dict) -> Trial:
    """Feed a sequence of n positions piece by piece through a layer with a fresh cache."""
    chunks = (min(2, n),) + (1,) * (n - 2) if chunks is None else tuple(chunks)
    if sum(chunks) != n or min(chunks, default=0) < 1:
        raise ValueError(f"chunks {chunks} add up to {sum(chunks)}, but the sequence has {n} positions to cut up")

    def feed(x: Tensor) -> Tensor:
        if isinstance(layer, nn.Module):
            layer.eval()
        memory = cache()
        return torch.cat([layer(chunk, cache=memory, **kwargs) for chunk in x.split(chunks, dim=1)], dim=1)

    return feed


def influence(trial: Trial, x: Float[Tensor, "b n *m"]) -> Bool[Tensor, "n n"]:
    """Change one position after the other, by a little and by a lot, and see where the output moves."""
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
            "given to leaks; for other widths or number types hand over a function and its own x"
        ) from error
    if not isinstance(before, Tensor):
        raise TypeError(
            f"the layer returned a {type(before).__name__}, but one tensor is needed: hand over a function that picks "
            "it, such as lambda x: layer(x)[0], or a small module around the layer"
        )
    if before.ndim < 2 or before.shape[:2] != x.shape[:2]:
        raise ValueError(f"{given} gave output {tuple(before.shape)}: one row for each input is needed")
    if not torch.allclose(before, _run(trial, x), rtol=0, atol=0, equal_nan=True):
        raise ValueError("the layer answers the same input differently, even from the same random state")
    return before


def _run(trial: Trial, x: Tensor) -> object:
    with torch.no_grad(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        return trial(x.clone())


def _largest(x: Tensor) -> Float[Tensor, "n"]:
    """Return the largest absolute number at each position; a NaN is larger than all."""
    return x.abs().transpose(0, 1).flatten(1).amax(1)
