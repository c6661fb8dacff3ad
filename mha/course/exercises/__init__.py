"""Exercise checkers: each compares your function with the right one and, where it differs, names the likely mistake.

One file for each chapter. ``from mha.course.exercises.why_attention import check_softmax``, then
``check_softmax(my_function)``.
``mha.course.exercises.exercise.progress()`` shows what you have solved.

:Taught in: all chapters.
"""

from mha.course.exercises.exercise import Exercise, judge, progress

__all__ = ["Exercise", "judge", "progress"]
