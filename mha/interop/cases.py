"""Cases of the interop table: how to make a module of torch, convert it both ways, and call both on one input.

Taught in: chapter 07.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from mha.interop.pytorch import from_torch, to_torch
from mha.interop.seq_first import SeqFirst
from mha.masks import causal_mask, combine, padding_mask

B, N, J, D, HEADS = 3, 5, 7, 24, 6


@dataclass(frozen=True)
class Case:
    """One line of the table before it is measured: what it is called, and what to do."""

    library: str
    name: str
    options: str
    make: Callable[[], nn.Module]
    read: Callable[[nn.Module], nn.Module]
    write: Callable[[nn.Module, nn.Module], nn.Module]
    ours: Callable[[nn.Module], Tensor]
    theirs: Callable[[nn.Module], Tensor]


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers, the same ones at every call."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, MEMORY = noise(B, N, D), noise(B, J, D, seed=1)


def torch_cases() -> Iterator[Case]:
    """List the cases of ``nn.MultiheadAttention``."""
    x, memory, other, padding = X, MEMORY, noise(B, J, 10, seed=2), padding_mask([2, 5, 4], N)

    def case(options: str, inputs: tuple, mask: Tensor | None = None, hide: dict | None = None, **made) -> Case:
        make = partial(nn.MultiheadAttention, D, HEADS, batch_first=True, **made)
        keys = inputs if len(inputs) == 3 else (inputs[0], inputs[-1], inputs[-1])
        return Case(
            "torch", "nn.MultiheadAttention", options, make, from_torch, lambda layer, _: to_torch(layer),
            lambda layer: layer(*inputs, mask=mask), lambda module: module(*keys, **(hide or {}))[0],
        )  # fmt: skip

    causal = {"attn_mask": ~causal_mask(N)}
    yield case("packed", (x,))
    yield case("packed, no bias, causal", (x,), causal_mask(N), causal, bias=False)
    padded = {"key_padding_mask": ~padding[:, 0, 0]}
    yield case("packed, padding", (x,), padding, padded)
    yield case("packed, padding and causal", (x,), combine(padding, causal_mask(N)), padded | causal)
    yield case("packed, cross-attention", (x, memory))
    yield case("separate: kdim 10, vdim 24, cross-attention", (x, other, memory), kdim=10)
    yield case("separate: kdim 10, vdim 10, no bias", (x, other), kdim=10, vdim=10, bias=False)
    yield seq_first_case()


def seq_first_case() -> Case:
    """Return the case of a sequence-first module behind :class:`SeqFirst`, with a mask (query, key, batch)."""
    x, memory, mask = noise(N, B, D), noise(J, B, D, seed=1), noise(N, J, B, seed=3) > -0.5

    def read(module: nn.Module) -> nn.Module:
        module.batch_first = True
        wrapped = SeqFirst(from_torch(module))
        module.batch_first = False
        return wrapped

    def write(wrapped: nn.Module, _module: nn.Module) -> nn.Module:
        module = to_torch(wrapped.layer)
        module.batch_first = False
        return module

    hidden = ~mask.permute(2, 0, 1).repeat_interleave(HEADS, 0)
    return Case(
        "torch", "nn.MultiheadAttention", "sequence first, mask (query, key, batch)",
        partial(nn.MultiheadAttention, D, HEADS), read, write,
        lambda wrapped: wrapped(x, memory, mask=mask), lambda module: module(x, memory, memory, attn_mask=hidden)[0],
    )  # fmt: skip
