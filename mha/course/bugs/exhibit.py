"""What an exhibit of the bug museum consists of."""

from collections.abc import Callable
from typing import NamedTuple


class Exhibit(NamedTuple):
    """One bug: its symptom, who would notice it, the broken and the mended code, and the test that tells them apart.

    ``test`` takes one of the two functions and says whether it is right; ``weak`` is a check that both pass.
    ``place`` is the section of a chapter where the bug is taught, as "masking#the-formula". ``right`` are functions
    that both versions may call, shown before them: nothing is wrong with any of these.
    """

    title: str
    symptom: str
    who: str
    broken: Callable
    mended: Callable
    test: Callable[[Callable], bool]
    weak: Callable[[Callable], bool]
    threads: tuple[str, ...]
    place: str
    right: tuple[Callable, ...] = ()
