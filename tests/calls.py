"""Call every public name as careless users do, and list what was neither right nor refused clearly.

    python tests/calls.py [--seed 3] [--calls 500] [--only split_heads]

Every name in the lists of ``mha`` and its rooms is called once as it should be, and then with one argument replaced by
each of some sixty values: nothing, texts, other numbers, arrays, tensors of other shapes and kinds. A call must give an
answer without NaN, or raise ValueError or TypeError with the argument's name and what was given. What does not fit an
annotation must be refused. It runs by itself, without the checks of annotations that the tests switch on.
"""

import argparse
import contextlib
import datetime
import importlib
import inspect
import io
import math
import pkgutil
import random
import re
import signal
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import beartype
import jaxtyping
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from beartype.door import is_bearable
from torch import Tensor, nn

import mha
from mha import functional, layers, models
from mha.data import python_source

mpl.use("agg")

# What stands for an axis, and for a number where the annotation is int.
AXES = {
    "b": 2,
    "i": 3,
    "j": 3,
    "n": 3,
    "t": 3,
    "h": 4,
    "g": 4,
    "d": 4,
    "c": 4,
    "m": 16,
    "k": 16,
    "mk": 16,
    "mv": 16,
    "w": 8,
}
NUMBERS = {
    "d_model": 16, "heads": 4, "kv_heads": 2, "chosen": 1, "capacity": 8, "vocab_size": 9, "source_vocab": 9, "rank": 2,
    "target_vocab": 9, "width": 16, "longest": 8, "window": 2, "count": 2, "steps": 4, "head": 0, "layer": 0,
    "seconds": 20, "routed": 3, "shared": 1, "fresh": 2, "offset": 1, "d_shared": 8, "size": 2, "layers": 2,
    "d_latent": 8, "d_rotary": 2, "d_query": 6, "k": 2, "index_heads": 3, "d_index": 4, "block": 2,
}  # fmt: skip


def words(b: int = 2, n: int = 3) -> Tensor:
    return torch.randint(1, 8, (b, n))


def heads() -> mha.MultiHeadAttention:
    return mha.MultiHeadAttention(16, 4)


def language_model() -> models.LanguageModel:
    return models.LanguageModel(9, 16, 4)


def batch_loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean((1, 2))


def loss(model: nn.Module, step: int) -> Tensor:
    return model(words()).square().mean()


def program() -> python_source.Program:
    return python_source.read_program("def f(a):\n    b = a + 1\n    return b * a\n")


def code() -> python_source.Code:
    return python_source.numbered([program()] * 3)


def table() -> dict[str, np.ndarray]:
    return {"one": np.eye(3), "two": np.ones((3, 3)) / 3}


def bert() -> nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertAttention

    return BertAttention(
        BertConfig(hidden_size=16, num_attention_heads=4, attn_implementation="eager", attention_probs_dropout_prob=0.0)
    )


# Arguments that no annotation tells: by "owner.argument", or by "argument" for all.
GIVEN: dict[str, Callable[[], Any]] = {
    "color": lambda: "#0b6e99",
    "later": functional.Changes,
    "crop.length": lambda: 0,
    "reorder.rows": lambda: [0, 1],
    "GroupedAttention.take_heads.heads": lambda: [2, 3],
    "times": lambda: 2,
    "generator": lambda: torch.Generator().manual_seed(0),
    "model": language_model,
    "module": lambda: nn.MultiheadAttention(16, 4, batch_first=True),
    "HeadView.item": lambda: 0,
    "weights": lambda: torch.rand(2, 4, 3, 3).softmax(-1),
    "targets": lambda: torch.eye(3, dtype=torch.bool),
    "visible": lambda: torch.ones(3, 3, dtype=torch.bool),
    "code": code,
    "attention": lambda: 4,
    "layer": heads,
    "scores": lambda: torch.randn(2, 4, 3, 3),
    "batches": lambda: [words(), words()],
    "losses": lambda: batch_loss,
    "cache": lambda: None,
    "target": words,
    "source": words,
    "source_mask": lambda: None,
    "target_mask": lambda: None,
    "padding": lambda: [0, 1],
    "alpha": lambda: 1.5,
    "layout": lambda: "half",
    "norm": lambda: nn.LayerNorm,
    "positions": lambda: None,
    "WindowCache.positions": lambda: "inside",
    "bias": lambda: True,
    "fusion": lambda: "share",
    "gates": lambda: "released",
    "gate": lambda: "head",
    "sink": lambda: 0.5,
    "softmax_with_sink.sink": lambda: torch.rand(4),
    "attend_with_sink.sink": lambda: torch.rand(4),
    "rows": lambda: ["a", "b", "c"],
    "columns": lambda: ["d", "e", "f"],
    "dtype": lambda: torch.float32,
    "measure_machine.n": lambda: 32,
    "measure_machine.megabytes": lambda: 1,
    "mixed.n": lambda: 9,
    "mixed.count": lambda: 8,
    "mixed.code": lambda: python_source.numbered([program()] * 9),
    "take_heads.heads": lambda: [0, 2],
    "ReleasedAttention.take_heads.heads": lambda: [0, 1],
    "LinearBias.take_heads.heads": lambda: 4,
    "LinearBias.take_heads.chosen": lambda: [0, 2],
    "check_mask.mask": lambda: torch.ones(2, 4, 3, 3, dtype=torch.bool),
    "mix_heads.mixing": lambda: torch.linalg.qr(torch.rand(2, 4, 4)).Q,
    "fit_shared.matrices": lambda: torch.rand(4, 16, 4),
    "keep_largest.matrices": lambda: torch.rand(4, 16, 4),
    "Shared.error.matrices": lambda: torch.rand(4, 16, 4),
    "FeedbackAttention.forward.key": lambda: torch.rand(2, 3, 16),
    "DeltaAttention.forward.is_causal": lambda: True,
    "DeltaAttention.decay": lambda: "channel",
    "DeltaAttention.gate": lambda: "silu",
    "as_released.model": lambda: "Kimi Linear",
    "delta_rule.k": lambda: nn.functional.normalize(torch.rand(2, 4, 3, 4), dim=-1),
    "delta_weights.k": lambda: nn.functional.normalize(torch.rand(2, 4, 3, 4), dim=-1),
    "MergedAttention.forward.key": lambda: torch.rand(2, 3, 16),
    "HeadView.tokens": lambda: ["a", "b", "c"],
    "head_view.tokens": lambda: ["a", "b", "c"],
    "from_additive.mask": lambda: functional.to_additive(torch.rand(3, 3) > 0.5),
    "shape": lambda: (2, 4, 3, 3),
    "check_mask.device": lambda: torch.device("cpu"),
    "groups": lambda: [[0, 1], [2, 3]],
    "balance_loss.gates": lambda: torch.rand(2, 4, 3),
    "choose.scores": lambda: torch.rand(2, 4, 3),
    "choose_tokens.scores": lambda: torch.rand(2, 3, 3),
    "choose_blocks.scores": lambda: torch.rand(2, 3, 3),
    "index_loss.scores": lambda: torch.rand(2, 3, 3),
    "index_loss.chosen": lambda: torch.ones(2, 3, 3, dtype=torch.bool),
    "compress_blocks.overlap": lambda: True,
    "compress_blocks.before": lambda: (torch.rand(2, 2, 8), torch.rand(2, 2, 8)),
    "pool": lambda: "max",
    "index_layout": lambda: "half",
    "overlaps": lambda: [1],
    "FeedbackStack.layers": lambda: [models.FeedbackLayer(16, 4)],
    "FeedbackStack.step.cache": lambda: models.FeedbackStack([models.FeedbackLayer(16, 4)]).new_cache(),
    "FeedbackLayer.forward.cache": layers.FeedbackMemory,
    "Stack.layers": lambda: [models.EncoderLayer(16, 4)],
    "depth_scaled_init.layers": lambda: [models.MergedDecoderLayer(16, 4)],
    "matrices": lambda: [nn.Parameter(torch.rand(4, 4))],
    "part": lambda: nn.Linear(16, 16),
    "smooth.losses": lambda: [3.0, 2.0, 1.0],
    "smooth.window": lambda: 2,
    "loss": lambda: loss,
    "next_logits": lambda: lambda words: torch.rand(len(words), 9),
    "leaks.layer": lambda: lambda x, **_: heads().to(x)(x, is_causal=True),
    "leaks.x": lambda: torch.rand(2, 3, 16),
    "keep": lambda: {"decoder.0.attention": [0, 2]},
    "top_heads.scores": lambda: {"a": torch.rand(4), "b": torch.rand(4)},
    "from_transformers.module": bert,
    "to_transformers.module": bert,
    "swap.model": lambda: nn.Sequential(bert()),
    "swap.layer": lambda: 0,
    "from_torch.module": lambda: nn.MultiheadAttention(16, 4, batch_first=True),
    "relayout.layer": lambda: mha.MultiHeadAttention(16, 4, positions=mha.RotaryPositions()),
    "relayout.layout": lambda: "interleaved",
    "reorder_rows.rows": lambda: torch.rand(16, 16),
    "reorder_rows.d_head": lambda: 4,
    "factor": lambda: 4.0,
    "base": lambda: 1e4,
    "trained": lambda: 16,
    "day": lambda: datetime.date(2024, 2, 29),
    "form": lambda: "full",
    "texts": lambda: ["ab", "b"],
    "read_program.source": lambda: "def f(a):\n    return a + 1\n",
    "programs": lambda: [program()] * 3,
    "sentence": lambda: "we saw the play",
    "cost": lambda: heads().cost(1, 3),
    "runs": lambda: [lambda: None],
    "boxes": lambda: {"a": (0, 0, "words"), "b": (1, 0, "heads")},
    "arrows": lambda: [("a", "b", "split")],
    "Looks.weights": lambda: torch.rand(4, 3, 3).softmax(-1),
    "written": lambda: ["a", "b", "c"],
    "Looks.source": lambda: ["d", "e", "f"],
    "panels": table,
    "owners": lambda: {"one": np.eye(3, dtype=int), "two": np.ones((3, 3), dtype=int)},
    "grid.matrices": table,
    "links.heads": table,
    "series": lambda: {"a": ([1, 2], [3.0, 4.0])},
    "values": lambda: {"a": 1.0, "b": 2.0},
    "pictures": lambda: {"one": "<svg>1</svg>", "two": "<svg>2</svg>"},
    "question": lambda: "What?",
    "alt": lambda: "A grid of three times three numbers, ones on the diagonal.",
    "label": lambda: "steps",
    "x_label": lambda: "steps",
    "y_label": lambda: "loss",
    "untrained_weights": lambda: [torch.rand(2, 4, 3, 3).softmax(-1)],
    "separator.marks": lambda: [1, 2],
    "matching.pairs": lambda: {1: 2},
    "still_open.pairs": lambda: {1: 2},
    "rarest.counts": lambda: torch.arange(9),
    "from_pretrained.name": lambda: "nowhere",
}

# Methods that refuse every call, and say why.
NEVER = {f"mha.{kind}Attention.take_heads" for kind in ("Composable", "Overlapping", "Routed", "Talking")} | {
    "mha.SelfAttention.new_cache",
    "mha.LinearAttention.from_plain",
    "mha.DeltaAttention.from_plain",
}
INHERITED = ("forward", "from_plain", "take_heads", "cost")  # asked of every kind of layer, wherever it is written

# Records that the package fills in and readers only read.
RECORDS = {
    "Reaction", "Wheel",
    "Aligned", "Cost", "Part", "DecoderCache", "ModelCache", "FeedbackCache", "Row", "Leaks", "HeadScores", "Program",
    "Code", "Case", "Shared", "Reader", "Latent", "Operations",
}  # fmt: skip


# ---- what is called


@dataclass(frozen=True)
class Target:
    """One public function, constructor or method."""

    name: str
    find: Callable[[], Callable]  # a fresh one at each call, bound to a fresh object


def rooms() -> Iterator[tuple[str, dict[str, Any]]]:
    """The public names of the package: its lists, and the files of the rooms that have none."""
    for room in ("mha", *(f"mha.{one}" for one in ["functional", "layers", "models", "analysis", "interop"])):
        module = importlib.import_module(room)
        yield room, {name: getattr(module, name) for name in module.__all__}
    for room in ("data", "systems", "viz", "analysis"):
        package = importlib.import_module(f"mha.{room}")
        for file in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"mha.{room}.{file.name}")
            yield (
                module.__name__,
                {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__},
            )


# Called among the parts of the package, with what the caller has checked.
INSIDE = {
    "keep", "needs_weights", "explicit", "rates",
    "then", "admit", "holds", "held", "update", "update_pieces", "check_crop", "changes", "above_one", "plain_settings",
    "add", "settings", "compositions", "needs_all", "tables", "add_average", "own_average",
    "reset_parameters", "extra_repr", "turn", "bias", "pieces", "zero_grad", "prepare", "prepare_mask", "biased",
    "squeeze", "queries", "compressed", "expand", "absorbs", "read_expanded", "read_absorbed",
    "mha.analysis.leaks.as_double", "mha.analysis.leaks.in_mode", "mha.analysis.leaks.in_chunks",
    "mha.analysis.leaks.influence", "mha.systems.launch.check_group", "mha.systems.launch.check_same",
    "mha.systems.launch.join", "mha.systems.launch.launch", "mha.systems.tensor_parallel.shard_heads",
    "mha.systems.tensor_parallel.whole", "mha.systems.tensor_parallel.load_whole", "mha.viz.sliders.bars",
    "mha.viz.sliders.cells", "mha.viz.headview.shown", "mha.viz.headview.read_layers",
    "mha.viz.headview.read_layer", "mha.viz.headview.write_page", "mha.viz.headview.Layer", "mha.layers.Seen",
    "mha.interop.from_pretrained",  # asks the network
    # read files that set-up downloads; tests/data/test_trained.py calls them
    "mha.data.trained.digest", "mha.data.trained.open_wheel", "mha.data.trained.reaction_model",
    "mha.data.trained.reaction_words", "mha.data.trained.read_reaction", "mha.data.trained.sentence_model",
    "mha.data.trained.sentence_reader",
}  # fmt: skip


def targets() -> dict[str, Target]:
    found: dict[Any, Target] = {}
    for room, names in rooms():
        for name, what in names.items():
            full = f"{room}.{name}"
            if (
                (name.startswith(("_", "check_")) and name != "check_mask")
                or not callable(what)
                or full in INSIDE
                or id(what) in found
            ):
                continue
            if (inspect.isfunction(what) or inspect.isclass(what)) and name not in RECORDS:
                found[id(what)] = Target(full, lambda what=what: what)
            for method in methods(what):
                kind = inspect.getattr_static(what, method)
                if method.startswith("_") or method in INSIDE or isinstance(kind, property):
                    continue
                if isinstance(kind, classmethod):
                    find = lambda what=what, method=method: getattr(what, method)  # noqa: E731
                    found[id(what), method] = Target(f"{full}.{method}", find)
                elif inspect.isfunction(kind):
                    find = lambda what=what, method=method: getattr(made_object(what), method)  # noqa: E731
                    found[id(what), method] = Target(f"{full}.{method}", find)
    return {target.name: target for target in found.values()}


def methods(what: Any) -> list[str]:
    if not inspect.isclass(what):
        return []
    return list(dict.fromkeys([*vars(what), *(INHERITED if issubclass(what, mha.Heads) else ())]))


def made_object(kind: type) -> Any:
    return OBJECTS[kind.__name__]() if kind.__name__ in OBJECTS else kind(**good(kind.__name__, kind))


def good(owner: str, function: Callable) -> dict[str, Any]:
    """Arguments with which the call is right."""
    given = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        short = ".".join(owner.split(".")[-2:])
        keys = (f"{short}.{p.name}", f"{owner.split('.')[-1]}.{p.name}")
        key = next((k for k in keys if k in GIVEN), None)
        if key:
            given[p.name] = GIVEN[key]()
        elif p.default is p.empty:
            given[p.name] = GIVEN[p.name]() if p.name in GIVEN else made(p.name, p.annotation)
    return given


def options(annotation: Any) -> list[Any]:
    if isinstance(annotation, str):  # a class that names itself
        annotation = next(getattr(room, annotation) for room in (mha, functional) if hasattr(room, annotation))
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return list(typing.get_args(annotation))
    return [annotation]


def made(name: str, annotation: Any) -> Any:
    """Make what fits an annotation."""
    kind = options(annotation)[0]
    if inspect.isclass(kind) and issubclass(kind, jaxtyping.AbstractArray):
        shape = [
            2 if a.startswith("*") else int(a) if a.isdigit() else AXES.get(a, 2)
            for a in kind.dim_str.split()
            if a != "..."
        ]
        if kind.dtype is jaxtyping.Bool:
            return torch.ones(shape, dtype=torch.bool)
        return torch.randint(0, 4, shape) if kind.dtype is jaxtyping.Int else torch.rand(shape)
    makers: dict[Any, Callable[[], Any]] = {
        int: lambda: NUMBERS.get(name, 3),
        float: lambda: 0.5,
        bool: lambda: False,
        nn.Module: heads,
        mha.Heads: heads,
        Tensor: lambda: torch.rand(2, 3, 16),
    }
    if kind in makers:
        return makers[kind]()
    raise LookupError(f"tests/calls.py: say in GIVEN what a right {name!r} is ({annotation})")


# ---- what is given instead


def nested(shape: tuple[int, ...], layout: torch.layout) -> Tensor:
    with warnings.catch_warnings():  # torch calls them a prototype
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(torch.rand(shape)), layout=layout)


def bad_values() -> list[Callable[[], Any]]:
    numbers = [-1, 0, 1, 2, 5, 7, 300, 10**12, 2.0, 2.5, -0.5, 1e30, math.nan, math.inf, -math.inf, 1j, True, False]
    texts = [None, "", "four", b"x", "half"]
    others = [object, dict, set, list, lambda: (), lambda: [1, 2], lambda: [-1], lambda: [7], lambda: ["a"]]
    others += [
        lambda: [0.5],
        lambda: [math.nan],
        lambda: (2, 3),
        lambda: {"a": 1},
        lambda: {"": [0]},
        lambda: {1: None},
    ]
    others += [
        lambda: [[1, 2], [3]],
        lambda: range(3),
        lambda: print,
        lambda: lambda *_, **__: None,
        lambda: nn.Identity,
    ]
    others += [
        nn.Identity,
        lambda: nn.Linear(16, 16),
        heads,
        lambda: torch.float16,
        lambda: torch.device("cpu"),
        lambda: [None],
    ]
    arrays = [
        lambda: np.ones(3),
        lambda: np.ones((2, 3, 16)),
        lambda: np.float64(2),
        lambda: np.int64(2),
        lambda: np.array("x"),
    ]
    shapes = [
        (),
        (0,),
        (1,),
        (3,),
        (7,),
        (3, 3),
        (3, 16),
        (2, 3, 16),
        (2, 3, 5),
        (5, 3, 16),
        (0, 3, 16),
        (2, 0, 16),
        (2, 4, 3, 4),
        (2, 4, 3, 3),
        (1, 2, 4, 3, 4),
    ]
    tensors: list[Callable[[], Any]] = [lambda s=s: torch.rand(s) for s in shapes]
    full = [(2, 3, 16), (2, 4, 3, 4), (2, 4, 3, 3), (3, 3), (4,), (2, 3)]
    for s in full:
        tensors += [
            lambda s=s: torch.full(s, math.nan),
            lambda s=s: torch.rand(s).double(),
            lambda s=s: torch.rand(s).half(),
        ]
        tensors += [
            lambda s=s: torch.rand(s) > 0.5,
            lambda s=s: torch.randint(-2, 30, s),
            lambda s=s: torch.rand(s, device="meta"),
        ]
        tensors += [
            lambda s=s: torch.zeros(s, dtype=torch.uint8),
            lambda s=s: torch.rand(s) + 0j,
            lambda s=s: torch.full(s, math.inf),
        ]
    for s in ((2, 3, 16), (2, 4, 3, 4), (3, 3)):
        tensors += [
            lambda s=s: torch.rand(s).to_sparse(),
            lambda s=s: nested(s, torch.strided),
            lambda s=s: nested(s, torch.jagged),
        ]
    return [*(lambda x=x: x for x in (*numbers, *texts)), *others, *arrays, *tensors]


# ---- the judgement


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value bears its annotation; whole numbers are numbers, and tuples do for lists."""
    if annotation is inspect.Parameter.empty or annotation is Any:
        return True
    for one in options(annotation):
        if one in (int, float) and not isinstance(value, bool | np.bool_):
            if isinstance(value, Integral if one is int else Real):
                return True
        elif isinstance(value, tuple) and typing.get_origin(one) is list:
            if is_bearable(list(value), one):
                return True
        elif one is bool or one is int or one is float:
            if one is bool and isinstance(value, bool):
                return True
        else:
            with contextlib.suppress(TypeError, RuntimeError):  # beartype asks an array without axes for its length
                if is_bearable(value, one, conf=beartype.BeartypeConf(is_pep484_tower=True)):
                    return True
    return False


def tensors_in(x: Any, depth: int = 3) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, float):
        yield torch.tensor(x)
    elif isinstance(x, np.ndarray) and x.dtype.kind == "f":
        yield torch.from_numpy(x)
    elif depth and isinstance(x, dict):
        for one in x.values():
            yield from tensors_in(one, depth - 1)
    elif depth and isinstance(x, list | tuple | set):
        for one in x:
            yield from tensors_in(one, depth - 1)
    elif depth and isinstance(x, nn.Module):
        yield from x.parameters()
    elif depth and hasattr(x, "__dict__"):
        yield from tensors_in(vars(x), depth - 1)


def numbers_in(x: Any) -> Iterator[Tensor]:
    return (t for t in tensors_in(x) if t.is_floating_point() and not t.is_meta and is_dense(t))


def is_dense(x: Tensor) -> bool:
    return x.layout is torch.strided and not x.is_nested


def holds_nan(x: Any) -> bool:
    return any(bool(t.isnan().any()) for t in numbers_in(x))


def finite(x: Any) -> bool:
    return all(bool(t.isfinite().all()) for t in numbers_in(x))


def odd(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether a value bears its annotation and is nonsense all the same, most of the time."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return not math.isfinite(value) or value < 0
    return (isinstance(value, str) and value in ("", "four")) or holds_nan(value)


def shown(value: Any) -> list[str]:
    """What an error may say about a value that was given; one of these is enough."""
    words = [repr(value), str(value), type(value).__name__]
    if isinstance(value, Tensor) and not is_dense(value):
        words = ["nested" if value.is_nested else str(value.layout), str(value.dtype)]
    elif isinstance(value, Tensor):
        words = [str(tuple(value.shape)), str(value.dtype), f"on {value.device}"]
        words += [str(x) for x in value.flatten()[:40].tolist()] if not value.is_meta else []
    elif isinstance(value, np.ndarray):
        words += [str(value.shape), "array"]
    elif isinstance(value, dict | list | tuple | set | range) and len(value):
        words += [repr(x) for x in value] + [f"({len(value)},)"]
        words += [str(x.dtype) for x in value if isinstance(x, Tensor)]
    elif isinstance(value, nn.Module):
        words += ["module"]
    return words


@dataclass(frozen=True)
class Finding:
    kind: str  # silent, unclear, slow
    call: str
    message: str


class TooSlow(BaseException):
    pass


def alarm(*_: object) -> None:
    raise TooSlow


def describe(value: Any) -> str:
    if isinstance(value, Tensor) and not is_dense(value):
        return f"<{'nested ' if value.is_nested else ''}{value.layout}>"
    if isinstance(value, Tensor):
        return f"<{str(value.dtype)[6:]} {tuple(value.shape)} {value.device}{'' if finite(value) else ' not finite'}>"
    return repr(value)[:60].replace("\n", " ")


@contextlib.contextmanager
def calling_no_layer() -> Iterator[None]:
    """Let an empty with pass, which those who watch or edit refuse at its end."""
    try:
        yield
    except RuntimeError as error:
        if "no layer ran past its taps" not in str(error):
            raise


def call(target: Target, replaced: str | None = None, make: Callable[[], Any] = object) -> tuple[str, Finding | None]:
    """Make one call and judge it: answered, refused, or a finding."""
    function = target.find()
    signature = inspect.signature(function)
    given = good(target.name, function)
    text = f"{target.name}()"
    fit = strange = True
    if replaced is not None:
        given[replaced] = value = make()
        parameter = signature.parameters[replaced]
        text = f"{target.name}({replaced}={describe(value)})"
        strange = odd(value, parameter)
        with jaxtyping.jaxtyped("context"):
            fit = all(
                fits(given[n], p.annotation) for n, p in signature.parameters.items() if n in given and n != replaced
            )
            fit = fits(value, parameter.annotation) and fit
    bounded = finite(given)
    signal.setitimer(signal.ITIMER_PROF, 5)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            answer = function(**given)
            if hasattr(answer, "__enter__") and hasattr(answer, "__exit__"):
                with calling_no_layer(), answer as inside:
                    answer = inside
            if hasattr(answer, "_repr_html_"):
                answer._repr_html_()
            repr(answer)
    except (ValueError, TypeError) as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if replaced is None:
            raise
        message = str(error)
        if target.name in NEVER and target.name.split(".")[-2] in message:
            return "refused", None
        named = re.search(rf"\b{replaced}\b", message)
        if named and any(word and word in message for word in shown(value)):
            return "refused", None
        return "refused", Finding("unclear", text, f"{type(error).__name__}: {message[:160]}")
    except TooSlow:
        return "slow", Finding("slow", text, "more than five seconds of processor time")
    except Exception as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if replaced is None:
            raise
        return "refused", Finding("unclear", text, f"{type(error).__name__}: {str(error)[:160]}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if replaced is None:
        return "answered", None
    nan = holds_nan(answer)
    if (target.name, replaced) in NOT_ASKED:
        return "answered", None
    if not fit:
        return "answered", Finding("silent", text, f"does not fit, but gives {describe(answer)}")
    if nan and bounded:
        return "answered", Finding("silent", text, "gives NaN")
    if strange and replaced not in TEXTS and (target.name.split(".")[-1], replaced) not in FREE and not nan:
        return "answered", Finding("silent", text, f"odd, but gives {describe(answer)}")
    return "answered", None


# Where a strange value is right: negative numbers, empty texts, arguments that are not asked.
FREE = {
    ("attend", "scale"), ("attention_weights", "scale"), ("HardConcrete", "log_a"), ("HardConcrete", "low"),
    ("Gates", "log_a"), ("Gates", "low"), ("HeadView", "item"), ("offset", "steps"), ("separator", "marks"),
    ("Characters", "texts"), ("smooth", "losses"), ("Diagram", "arrows"), ("grid", "rows"), ("grid", "columns"),
    ("tiles", "rows"), ("read_program", "source"), ("LinearBias", "steep"), ("all_reduce_bytes", "numbers"),
    ("forward", "q"),  # the router of the paper does not ask the queries
    ("attend_with_sink", "scale"), ("SinkAttention", "sink"), ("from_plain", "sink"),
    ("round_to_bits", "along"),  # an axis, counted from the last one
    ("attend_with_sink", "q"), ("attend_with_sink", "sink"),  # a kernel of torch takes NaN scores for hidden ones
}  # fmt: skip
TEXTS = {"caption", "name", "question", "x_label", "y_label", "bias", "alt"}  # any text will do
NOT_ASKED = {("mha.layers.NormRouter.forward", "x")}
OBJECTS: dict[str, Callable[[], Any]] = {
    "Heads": heads,
    "Shared": lambda: functional.fit_shared(torch.rand(4, 16, 4), 2, rounds=5),
    "DecoderCache": lambda: layers.DecoderCache(mha.KeyValueCache(8), layers.MemoryCache()),
    "ModelCache": lambda: models.Stack([models.EncoderLayer(16, 4)]).new_cache(8, [0, 1]),
}


def parameters(target: Target) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in inspect.signature(target.find()).parameters.values() if p.kind not in kinds]


def right(target: Target) -> None:
    """Call a target as it should be called; some refuse every call."""
    torch.manual_seed(0)
    with contextlib.suppress(ValueError) if target.name in NEVER else contextlib.nullcontext():
        call(target)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="which calls are drawn")
    parser.add_argument("--calls", type=int, default=10**9, help="at most so many calls, drawn from all")
    parser.add_argument("--only", default="", help="only the names that hold this text")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGPROF, alarm)
    torch.set_num_threads(1)
    wanted = [t for t in targets().values() if asked.only in t.name]
    for target in wanted:
        right(target)
    values = bad_values()
    calls = [(target, name, make) for target in wanted for name in parameters(target) for make in values]
    refused, findings = 0, []
    for target, name, make in random.Random(asked.seed).sample(calls, min(asked.calls, len(calls))):
        torch.manual_seed(0)
        verdict, finding = call(target, name, make)
        refused += verdict == "refused"
        if finding:
            findings.append(finding)
            print(f"{finding.kind:8} {finding.call}: {finding.message}".replace("\n", " "))
        plt.close("all")
    kinds = {kind: sum(f.kind == kind for f in findings) for kind in ("silent", "slow", "unclear")}
    print(f"{len(wanted)} names, {min(asked.calls, len(calls))} calls, {refused} of them refused:")
    print(f"{kinds}, so {kinds['unclear'] / max(refused, 1):.2%} of the refused are unclear")
    return bool(kinds["silent"] or kinds["slow"] or kinds["unclear"] > UNCLEAR * refused)


UNCLEAR = 0.02  # the share of refused calls whose error may miss the name, or what was given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
