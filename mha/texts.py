"""Texts on which a small language model grows heads that can be read: random repeats, Python, brackets.

Taught in: chapter 09.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from mha.python_text import Code, pieces

PAIRS = {0: 3, 1: 4, 2: 5}  # which closing bracket belongs to which opening one
BRACKETS = ("(", "[", "{", ")", "]", "}")


def repeats(
    count: int, n: int, *, generator: torch.Generator, words: int = 64, periods: tuple[int, int] = (4, 20)
) -> Int[Tensor, "b n"]:
    """Make random words that repeat with a random period: nothing can be known but by looking back.

    ``periods`` are the shortest and the longest. Every word of a period is drawn anew, so that some come twice in it.

    Taught in: chapter 09.
    """
    drawn = torch.randint(words, (count, n), generator=generator)
    period = torch.randint(periods[0], periods[1] + 1, (count, 1), generator=generator)
    return drawn.gather(1, torch.arange(n) % period)


def mixed(code: Code, count: int, n: int, *, generator: torch.Generator) -> Int[Tensor, "b n"]:
    """Make a batch of one quarter Python and three quarters repeats, Python first.

    Taught in: chapters 09 and 10.
    """
    python = pieces(code, count // 4, n, generator=generator)[0]
    return torch.cat([python, repeats(count - count // 4, n, generator=generator)])


def brackets(count: int, n: int, *, generator: torch.Generator) -> Int[Tensor, "b n"]:
    """Make brackets of three kinds that close in the right order; where some are open, half of the next ones close.

    Numbers 0, 1, 2 open and 3, 4, 5 close them (``PAIRS``).

    Taught in: chapter 09.
    """
    opens = torch.rand(count, n, generator=generator) < 0.5
    kinds = torch.randint(3, (count, n), generator=generator)
    rows = []
    for opening, kind in zip(opens.tolist(), kinds.tolist(), strict=True):
        row, waiting = [], []
        for new, which in zip(opening, kind, strict=True):
            if new or not waiting:
                waiting.append(which)
                row.append(which)
            else:
                row.append(PAIRS[waiting.pop()])
        rows.append(row)
    return torch.tensor(rows)
