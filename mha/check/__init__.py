"""Exercise checkers: each compares your function with the right one and, where it differs, names the likely mistake.

One file for each chapter. ``from mha.check.ch01 import check_softmax``, then ``check_softmax(my_function)``.
``mha.check.progress()`` shows what you have solved.

Taught in: all chapters.
"""

from mha.check._judge import Exercise, judge
from mha.check._progress import progress

__all__ = ["Exercise", "judge", "progress"]
