"""Multi-head attention, one idea a file: the package that every chapter of the course imports.

``import mha`` loads nothing heavy. A name such as ``mha.MultiHeadAttention`` is looked up when it is first used,
so that ``mha.reference`` also works where neither torch nor NumPy is installed.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "attend": "core",
    "attention_weights": "core",
    "merge_heads": "core",
    "split_heads": "core",
    "Heads": "attention",
    "MultiHeadAttention": "attention",
    "SelfAttention": "attention",
    "GroupedAttention": "grouped",
    "KeyValueCache": "cache",
    "MemoryCache": "cache",
    "causal_mask": "masks",
    "leaks": "masks",
    "padding_mask": "masks",
    "sliding_window": "masks",
    "LearnedPositions": "positions",
    "LinearBias": "relative",
    "RotaryPositions": "relative",
    "SinusoidalPositions": "positions",
    "one_hot_positions": "positions",
    "sinusoidal_positions": "positions",
    "edit": "watching",
    "watch": "watching",
    "train": "training",
    "smooth": "training",
}
_MODULES = ("attention", "cache", "check", "core", "masks", "plot", "positions", "reference", "relative", "tasks")
__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(import_module(f"mha.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"mha.{name}")
    else:
        raise AttributeError(f"module 'mha' has no attribute {name!r}")
    globals()[name] = value  # so that a sub-module of the same name (mha.train, mha.watch) cannot hide the function
    return value


def __dir__() -> list[str]:
    return __all__
