"""What a model checks first: tokens, masks, sources and caches.

Numbers of tokens are read where that is free, on a processor; a GPU would make every forward wait for it.

:Taught in: in_the_transformer.
"""

import inspect

import torch
from torch import Tensor, nn

from mha.checks import check_is_tensor, check_padded, described
from mha.functional import devices
from mha.layers.cache import ModelCache


def check_cacheable(*layers: nn.Module) -> None:
    """Refuse a cache for layers that would not use it."""
    for layer in layers:
        if "cache" not in inspect.signature(layer.forward).parameters:
            raise ValueError(f"{type(layer).__name__} takes no cache: generate with cached=False")


def check_crossing(layer: nn.Module) -> None:
    """Refuse positions that would compare two different sequences."""
    positions = getattr(layer, "positions", None)
    if positions is not None:
        raise ValueError(
            f"the cross-attention was made with {type(positions).__name__}, which compare positions of one sequence: "
            "give cross_attention=, a number of heads or a function that makes a layer without positions"
        )


def check_token_numbers(tokens: Tensor, known: int, name: str = "tokens") -> None:
    """Refuse what is no batch of token numbers from 0 to ``known - 1``."""
    check_is_tensor(name, tokens)
    check_padded(**{name: tokens})
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise TypeError(f"{name} have dtype {tokens.dtype}, but must be whole numbers, one for each token: torch.long")
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"{name} have shape {tuple(tokens.shape)}, but must be (batch, sequence), neither of them empty"
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} have dtype {tokens.dtype}, but must be torch.long: use {name}.long()")
    if tokens.is_meta:
        raise ValueError(f"{name} of shape {tuple(tokens.shape)} are on the meta device and hold no numbers")
    if not devices.reads_free(tokens):
        return  # their numbers are elsewhere: reading them would make every forward wait
    low, high = tokens.min().item(), tokens.max().item()
    if low < 0 or high >= known:
        wrong = low if low < 0 else high
        raise ValueError(f"token number {wrong} is unknown: this model knows {known} tokens, numbered 0 to {known - 1}")


def check_padding(name: str, mask: Tensor | None, tokens: Tensor) -> None:
    """Refuse a mask that does not say of each of the tokens whether it is one."""
    if mask is None:
        return
    check_is_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} has dtype {mask.dtype}, but must be torch.bool with True = 'may look'")
    if mask.ndim != 4 or mask.shape[1:3] != (1, 1):
        raise ValueError(
            f"{name} has shape {tuple(mask.shape)}, but must be (batch, 1, 1, tokens), as of mha.padding_mask"
        )
    if mask.device != tokens.device:
        raise ValueError(f"{name} is on {mask.device}, the tokens are on {tokens.device}: move one of them")


def check_named(name: str, mask: Tensor | None) -> None:
    """Refuse what is no mask, by the name that the caller knows it by."""
    if mask is not None:
        check_is_tensor(name, mask)
        if mask.dtype != torch.bool or mask.ndim not in (2, 4):
            raise TypeError(f"{name} is {described(mask)}, but must be torch.bool of 2 or 4 axes, True = 'may look'")


def next_positions(cache: ModelCache | None, tokens: Tensor, position_ids: Tensor | None = None) -> int | Tensor:
    """Return where new tokens are: the position of the first one, or with padding the positions of all, (b, n).

    :param cache: what was fed before.
    :param tokens: the new tokens, (b, n).
    :param position_ids: as the caller gave them; they are counted unless given.
    """
    if position_ids is not None:
        check_is_tensor("position_ids", position_ids)
        whole = position_ids.dtype in (torch.int64, torch.int32)
        if not whole or position_ids.ndim != 2 or position_ids.shape[1:] != tokens.shape[1:]:
            raise ValueError(
                f"position_ids = {described(position_ids)}: give whole positions from 0 on, one for each token, (b, n)"
            )
        return position_ids
    if cache is None:
        return 0
    counted = cache.position_ids(tokens.shape[1]) if tokens.ndim == 2 and tokens.shape[1] else None
    return cache.length if counted is None else counted


def check_kind_of_cache(cache: object, *kinds: type) -> None:
    """Refuse what is no cache of these kinds; None is no cache, and allowed."""
    if cache is not None and not isinstance(cache, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"cache = {described(cache)}: it must be a {names}, as new_cache() makes one")


def check_is_cache(cache: object, kind: type) -> None:
    """Refuse what is no cache of this kind, where one is needed."""
    if cache is None:
        raise TypeError(f"cache = None: a {kind.__name__} is needed, as new_cache() makes one")
    check_kind_of_cache(cache, kind)


def check_source(source: Tensor, mask: Tensor | None) -> None:
    """Refuse a source with nothing in it: there is nothing to translate."""
    check_is_tensor("source", source)
    check_padding("source_mask", mask, source)
    if source.ndim == 2 and source.shape[1] == 0:
        raise ValueError(f"the source is empty: it has shape {tuple(source.shape)}, so there is nothing to read")
    if mask is not None and mask.dtype == torch.bool and mask.ndim == 4 and devices.reads_free(mask):
        empty = (~mask.flatten(1).any(1)).nonzero().flatten().tolist()
        if empty:
            raise ValueError(f"source {empty} of the batch is empty: its mask hides every token. Leave it out")
