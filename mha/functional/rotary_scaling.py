"""Rates of rotary positions (RoPE) for sequences longer than those of training: the angle of one step, pair by pair.

A head of width d has d/2 pairs of channels, and pair p of position n is rotated by n · rate_p. Every rule below changes
the rates and nothing else; YaRN and LongRoPE also multiply all cosines and sines by an attention factor.

:Taught in: positions.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_flag, check_number, check_whole, checked


def _check_base(base: float) -> None:
    """Refuse a base of which no rates can be made, or which makes all of them equal."""
    check_number(base=base)
    if base <= 1:
        raise ValueError(f"base = {base}: it must be above 1, or no pair of channels is slower than another")


def _check_width(width: int) -> None:
    """Refuse a width that cannot be cut into pairs."""
    check_whole(2, width=width)
    if width % 2:
        raise ValueError(f"width = {width}: rotary positions need pairs of channels, so it must be even")


def _check_factor(factor: float) -> None:
    """Refuse a factor that would make the sequences shorter."""
    check_number(factor=factor)
    if factor < 1:
        raise ValueError(f"factor = {factor}: it says how many times longer sequences get, so it is at least 1")


def _exact(width: int, base: float) -> Tensor:
    """Make the rates in float64, on the CPU: some devices have no such numbers."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)


def _given(rates: Tensor) -> Tensor:
    """Bring rates to the device and type that torch takes for new tensors."""
    return rates.to(torch.get_default_device(), torch.get_default_dtype())


@checked
def rotary_rates(width: int, base: float = 10000.0, *, share: float = 1.0) -> Float[Tensor, "pairs"]:
    """Make the rates of rotary positions: 1 for the first pair of channels, nearly 1/base for the last one.

    With a ``share`` below 1 only the fastest pairs are rotated, and the others have a rate of 0 (proportional RoPE).
    Partial RoPE is something else: it takes the rates of a narrower head, ``rotary_rates(rotated)``.

    :param width: of a head, even.
    :param base: 2π times it is nearly the longest wavelength, in positions; 10000 unless given.
    :param share: of the pairs that are rotated, above 0 and at most 1; all unless given.
    :Shapes: returns (width / 2,), in radians per position.
    :Raises: ValueError for an odd width, a base of 1 or less, a share out of range.
    :Source: Su et al. 2021, section 3.2; for the share, the released code of Gemma 4.
    :Taught in: positions.
    """
    _check_width(width)
    _check_base(base)
    check_number(share=share)
    if not 0 < share <= 1:
        raise ValueError(f"share = {share}: it must be above 0 and at most 1, a part of the pairs of channels")
    rates = _exact(width, base)
    rates[int(share * width // 2) :] = 0.0
    return _given(rates)


@checked
def larger_base(width: int, factor: float, base: float = 10000.0) -> float:
    """Choose the base that makes the slowest pair slower by ``factor`` and leaves the first one as it is (NTK-aware).

    :param width: of the rotated channels of a head, even and at least 4.
    :param factor: how many times longer sequences get, at least 1.
    :param base: of training; 10000 unless given.
    :Raises: ValueError for an odd width or one below 4, a base of 1 or less, a factor below 1.
    :Source: the rule is known as NTK-aware scaling; Peng et al. 2024, section 3.1.
    :Taught in: positions.
    """
    _check_width(width)
    _check_base(base)
    _check_factor(factor)
    if width < 4:
        raise ValueError(f"width = {width}: with one pair of channels no base makes it slower; give at least 4")
    return float(base * factor ** (width / (width - 2)))


@checked
def yarn_rates(
    width: int,
    factor: float,
    trained: int,
    base: float = 10000.0,
    *,
    fast: float = 32.0,
    slow: float = 1.0,
    rounded: bool = True,
) -> Float[Tensor, "pairs"]:
    """Slow down the slow pairs of channels by ``factor``, leave the fast ones, and go over in between (YaRN).

    A pair that makes ``fast`` full turns or more in a sequence of training stays as it is, one that makes ``slow`` or
    fewer is slowed down. In between the change grows linearly with the *number* of the pair, not with its rate.

    :param width: of the rotated channels of a head, even.
    :param factor: how many times longer sequences get, at least 1.
    :param trained: how long the sequences of training were, at least 1.
    :param base: of training; 10000 unless given.
    :param fast: turns from which on a pair stays; 32 unless given.
    :param slow: turns below which a pair is slowed down by the whole factor, positive; 1 unless given.
    :param rounded: whether both ends of the ramp are rounded outwards to whole pairs; True unless given.
    :Shapes: returns (width / 2,), in radians per position.
    :Raises: ValueError for an odd width, a base of 1 or less, a factor below 1, ``fast`` not above ``slow``.
    :Source: Peng et al. 2024, section 3.2.
    :Taught in: positions.
    """
    check_whole(trained=trained)
    check_number(fast=fast, slow=slow)
    check_flag(rounded=rounded)
    _check_factor(factor)
    if not 0 < slow < fast:
        raise ValueError(f"slow = {slow}, fast = {fast}: numbers of turns; slow must be positive and below fast")
    _check_width(width)
    _check_base(base)
    rates = _exact(width, base)

    def place(turns: float) -> float:
        """The number of the pair, a fraction, that makes so many turns in a sequence of training."""
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = place(fast), place(slow)
    if rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    last += 0.001 if first == last else 0  # a ramp needs some width; the released code takes this one
    slowed = ((torch.arange(len(rates), device="cpu") - first) / (last - first)).clamp(0, 1).double()
    return _given(rates * (1 - slowed) + rates / factor * slowed)


@checked
def yarn_attention_factor(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """Say by what YaRN multiplies all cosines and sines: the scores are multiplied by its square.

    :param factor: how many times longer sequences get, at least 1.
    :param mscale: the weight of the logarithm of the factor, at least 0; 1 unless given.
    :param mscale_all_dim: where it is positive the result is divided by the same formula with this weight, at least 0;
        0 unless given. DeepSeek-V3 divides by what it multiplies with, and changes the scale of its scores instead.
    :Raises: ValueError for a factor below 1 and a weight below 0.
    :Source: Peng et al. 2024, section 3.4.
    :Taught in: positions.
    """
    _check_factor(factor)
    check_number(mscale=mscale, mscale_all_dim=mscale_all_dim)
    if min(mscale, mscale_all_dim) < 0:
        raise ValueError(f"mscale = {mscale}, mscale_all_dim = {mscale_all_dim}: neither may be negative")
    if mscale and mscale_all_dim:
        return (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all_dim * math.log(factor) + 1)
    return 0.1 * math.log(factor) + 1


@checked
def llama3_rates(
    width: int, factor: float, trained: int, base: float = 500000.0, *, low: float = 1.0, high: float = 4.0
) -> Float[Tensor, "pairs"]:
    """Slow down pairs by their wavelength, as Llama 3.1 does it: long waves by the whole ``factor``, short ones not.

    :param width: of a head, even.
    :param factor: how many times longer sequences get, at least 1.
    :param trained: how long the sequences of training were, at least 1.
    :param base: of training; 500000 unless given, as in Llama 3.
    :param low: a pair that makes fewer turns than this in a sequence of training is slowed down by the whole factor; 1
        unless given.
    :param high: one that makes more turns than this stays as it is; 4 unless given. In between the change is linear in
        the number of turns.
    :Shapes: returns (width / 2,), in radians per position.
    :Raises: ValueError for an odd width, a base of 1 or less, a factor below 1, ``high`` not above ``low``.
    :Source: the released code of Llama 3.1.
    :Taught in: positions.
    """
    check_whole(trained=trained)
    check_number(low=low, high=high)
    _check_factor(factor)
    if not 0 < low < high:
        raise ValueError(f"low = {low}, high = {high}: numbers of turns; low must be positive and below high")
    _check_width(width)
    _check_base(base)
    rates = _exact(width, base)
    turns = trained * rates / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return _given(rates * kept + rates / factor * (1 - kept))


@checked
def longrope_attention_factor(factor: float, trained: int) -> float:
    """Say by what LongRoPE multiplies all cosines and sines; its rates are divided by a list that a search has found.

    :param factor: how many times longer sequences get, at least 1.
    :param trained: how long the sequences of training were, at least 2.
    :Raises: ValueError for a factor below 1, for fewer than 2 positions.
    :Source: Ding et al. 2024; the released code of Phi-3.
    :Taught in: positions.
    """
    _check_factor(factor)
    check_whole(2, trained=trained)
    return math.sqrt(1 + math.log(factor) / math.log(trained))
