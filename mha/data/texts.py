"""Sequences on which a small language model learns heads that can be interpreted: random repeats, Python, brackets.

:Taught in: reading_heads.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from mha.checks import checked
from mha.data.python_source import Code, pieces

PAIRS = {0: 3, 1: 4, 2: 5}  # which closing bracket belongs to which opening one


BRACKETS = ("(", "[", "{", ")", "]", "}", "·")  # and a filler


@checked
def repeats(
    count: int, n: int, *, generator: torch.Generator, vocab_size: int = 64, periods: tuple[int, int] = (4, 20)
) -> Int[Tensor, "b n"]:
    """Make random tokens that repeat with a random period: nothing can be predicted but by looking back.

    Every token of a period is drawn anew, so that some come twice in it.

    :param count: how many sequences, b.
    :param n: how many tokens each has.
    :param generator: where the random numbers come from.
    :param vocab_size: how many different tokens there are; 64 unless given.
    :param periods: the shortest and the longest, in tokens; 4 and 20 unless given.
    :Shapes: returns (b, n).
    :Taught in: reading_heads.
    """
    drawn = torch.randint(vocab_size, (count, n), generator=generator)
    period = torch.randint(periods[0], periods[1] + 1, (count, 1), generator=generator)
    return drawn.gather(1, torch.arange(n) % period)


@checked
def mixed(code: Code, count: int, n: int, *, generator: torch.Generator) -> Int[Tensor, "b n"]:
    """Make a batch of one quarter Python and three quarters repeats, Python first.

    :param code: where the Python is cut from.
    :param count: how many sequences, b.
    :param n: how many tokens each has.
    :param generator: where the random numbers come from.
    :Shapes: returns (b, n).
    :Taught in: reading_heads, pruning_heads.
    """
    python = pieces(code, count // 4, n, generator=generator)[0]
    return torch.cat([python, repeats(count - count // 4, n, generator=generator)])


@checked
def brackets(count: int, n: int, *, generator: torch.Generator, filler: float = 0.35) -> Int[Tensor, "b n"]:
    """Make brackets of three kinds that close in the right order, with filler between them.

    Numbers 0, 1, 2 open and 3, 4, 5 close them (``PAIRS``), 6 is the filler. Where some are open, half of the brackets
    close. Without filler half of the pairs would be at the same few distances.

    :param count: how many sequences, b.
    :param n: how many tokens each has.
    :param generator: where the random numbers come from.
    :param filler: the share of tokens between the brackets, at least 0 and below 1; 0.35 unless given.
    :Shapes: returns (b, n).
    :Raises: ValueError where the filler leaves no room for brackets.
    :Taught in: reading_heads.
    """
    if not 0 <= filler < 1:
        raise ValueError(f"filler = {filler}: it is a share, at least 0 and below 1")
    fills, opens = (torch.rand(2, count, n, generator=generator) < torch.tensor([filler, 0.5])[:, None, None]).tolist()
    kinds = torch.randint(3, (count, n), generator=generator).tolist()
    return torch.tensor([_one(*row) for row in zip(fills, opens, kinds, strict=True)])


def _one(fills: list[bool], opens: list[bool], kinds: list[int]) -> list[int]:
    """Make one sequence, with the stack of open brackets."""
    row: list[int] = []
    waiting: list[int] = []
    for fill, new, kind in zip(fills, opens, kinds, strict=True):
        if fill:
            row.append(6)
        elif new or not waiting:
            waiting.append(kind)
            row.append(kind)
        else:
            row.append(PAIRS[waiting.pop()])
    return row
