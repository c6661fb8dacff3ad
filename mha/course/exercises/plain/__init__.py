"""Exercises in plain Python and the judge that both the notebooks and the pages use.

Everything here runs in MicroPython too, so that a page can check an answer: it imports ``math``, ``mha.reference`` and
the files of this folder, nothing else. One file for each chapter that has such exercises.

:Taught in: the page "How to use this course".
"""
