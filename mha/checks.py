"""What an argument must be, in one wording: each error names the argument and shows what was given.

Taught in: why_attention.
"""

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def check_whole(at_least: int | None = 1, /, **numbers: Any) -> None:
    """Refuse what is no whole number, or one below ``at_least``."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Integral | torch.SymInt):
            raise TypeError(f"{name} = {number!r}: it must be a whole number")
        if at_least is not None and number < at_least:
            raise ValueError(f"{name} = {number}: it must be at least {at_least}")


def check_number(finite: bool = True, /, **numbers: Any) -> None:
    """Refuse what is no number, and what is not ``finite``."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Real | torch.SymFloat):
            raise TypeError(f"{name} = {number!r}: it must be a number")
        if finite and not math.isfinite(number):
            raise ValueError(f"{name} = {number}: it must be finite")


def check_flag(**flags: Any) -> None:
    """Refuse what is neither True nor False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} = {flag!r}: it must be True or False")


def check_tensor(*axes: int, **tensors: Any) -> None:
    """Refuse what is no tensor of floating-point numbers, or none with so many ``axes`` where any are named."""
    for name, x in tensors.items():
        check_is_tensor(name, x)
        if not x.is_floating_point():
            raise TypeError(f"{name} has dtype {x.dtype}, but must be floating point: convert it with .float()")
        if axes and x.ndim not in axes:
            wanted = " or ".join(map(str, axes))
            raise ValueError(f"{name} has shape {tuple(x.shape)}, but must have {wanted} axes")


def check_is_tensor(name: str, x: Any) -> None:
    """Refuse lists, arrays and all else that is no tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is {type(x).__name__}, but must be a tensor: use torch.as_tensor({name})")


def check_like_weights(name: str, x: Tensor, weight: Tensor) -> None:
    """Refuse numbers of another type or device than the weights; autocast may mix types."""
    if x.device != weight.device:
        raise ValueError(
            f"{name} is on {x.device}, but the weights are on {weight.device}: use {name}.to('{weight.device}') or "
            f"layer.to('{x.device}')"
        )
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"{name} has dtype {x.dtype}, but the weights have {weight.dtype}: use {name}.to({weight.dtype}) or "
            f"layer.to({x.dtype})"
        )
