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
    "FeedbackAttention": "feedback",
    "FeedbackLayer": "stepping",
    "FeedbackStack": "stepping",
    "RoutedAttention": "mixture",
    "MergedAttention": "merged",
    "MergedCache": "merged",
    "MergedDecoderLayer": "deepening",
    "shrink_starts": "deepening",
    "SelfAttention": "attention",
    "SparseAttention": "sparse",
    "TalkingAttention": "talking",
    "ComposableAttention": "composable",
    "ComposedCache": "composable",
    "align_heads": "alignment",
    "spread_heads": "parallel",
    "Cost": "cost",
    "Machine": "cost",
    "measure_machine": "cost",
    "tiled_attention": "tiled",
    "DecoderCache": "cache",
    "DecoderLayer": "transformer",
    "Embedding": "blocks",
    "EncoderDecoder": "encoder_decoder",
    "EncoderLayer": "transformer",
    "FeedForward": "blocks",
    "CollaborativeAttention": "collaborative",
    "collaborate": "compress",
    "OverlappingAttention": "overlapping",
    "overlap_heads": "widening",
    "overlap_schedule": "widening",
    "GroupedAttention": "grouped",
    "KeyValueCache": "cache",
    "LanguageModel": "models",
    "MemoryCache": "cache",
    "ModelCache": "cache",
    "Residual": "blocks",
    "Stack": "blocks",
    "greedy": "decoding",
    "sampling": "decoding",
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
    "HeadView": "headview",
    "Gates": "gates",
    "HardConcrete": "gates",
    "head_importance": "importance",
    "pruned": "prune",
    "MuonAndAdamW": "muon",
    "train": "training",
    "round_weights": "training",
    "smooth": "training",
}
_MODULES = (
    "alignment", "attention", "blocks", "cache", "check", "choosing", "circuits", "composable", "composing", "contests",
    "core", "cost", "decoding", "deepening", "detect", "encoder_decoder", "feedback", "findings", "frames", "gates",
    "grouped", "hard_routing", "headview", "importance", "interop", "jobs", "kinds", "masks", "merged", "mixture",
    "models", "muon", "naming", "null", "parallel", "plot", "positions", "prune", "python_names", "python_text", "quiz",
    "reference", "relative", "routing", "similarity", "sparse", "stepping", "talking", "targets", "tasks", "texts",
    "tiled", "transformer", "writing",
)  # fmt: skip
__all__ = sorted([*_HOME, *_MODULES])


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(import_module(f"mha.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"mha.{name}")
    else:
        raise AttributeError(f"module 'mha' has no attribute {name!r}")
    globals()[name] = value  # the next time it is an ordinary name
    return value


def __dir__() -> list[str]:
    return __all__
