"""Call a reader's function so that nothing it does can hurt: a time limit, little print, no seed left changed."""

import contextlib
import copy
import ctypes
import io
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from mha.course.exercises.plain.judge import SeedSetError, TimeIsUpError

MOST_PRINTED = 2000  # characters


class _Short(io.TextIOBase):
    """Pass on the first characters that are printed, and swallow the rest."""

    def __init__(self, screen: Any) -> None:
        self.screen, self.left = screen, MOST_PRINTED

    def write(self, text: str) -> int:
        if self.screen is not None and self.left > 0:
            self.screen.write(
                text[: self.left] if len(text) <= self.left else text[: self.left] + " … (print stopped)\n"
            )
        self.left -= len(text)
        return len(text)


def call(function: Callable, case: tuple, seconds: float, *, shown: bool = True) -> tuple[Any, tuple]:
    """Call a function with a copy of a case, and return its result and what became of the copy.

    :Raises: what the function raises; TimeIsUpError after ``seconds``; SeedSetError where it set the global seed.
    """
    given = copy.deepcopy(case)
    seed = torch.initial_seed()
    with _unchanged(), contextlib.redirect_stdout(_Short(sys.stdout if shown else None)):
        result = _limited(function, given, seconds)
        if torch.initial_seed() != seed:
            raise SeedSetError("it sets the global seed, which changes all random numbers")
    return result, given


@contextlib.contextmanager
def _unchanged() -> Iterator[None]:
    """Put back the states of all random numbers and the default number type."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - a reader may use the old one
    dtype = torch.get_default_dtype()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        torch.set_default_dtype(dtype)


def _limited(function: Callable, given: tuple, seconds: float) -> Any:
    """Call a function; when the time is up, raise TimeIsUpError inside it. It works in any thread of any system."""
    here, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    done: list[bool] = []

    def stop() -> None:
        with lock:
            if not done:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(here, ctypes.py_object(TimeIsUpError))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        return function(*given)
    finally:
        with lock:
            done.append(True)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(here, None)  # one that came in the very last moment
        timer.cancel()
