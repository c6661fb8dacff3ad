"""What an argument must be, in one wording: each error names the argument and shows what was given.

:Taught in: why_attention.
"""

import collections.abc
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NoReturn, ParamSpec, TypeVar

import jaxtyping
import numpy as np
import torch
from torch import Tensor

LARGE = 10**5  # from here on the size of a tensor may be more than a computer holds
LAYERS = 10**4  # no model is deeper
LOOPS = 10**7  # a loop of more steps or tokens would take days

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[[str, Any], None]


def described(value: Any) -> str:
    """Describe in a few words what was given: the kind and shape of a tensor, the text of what is short.

    :param value: anything.
    """
    if isinstance(value, Tensor):
        if value.is_nested:  # it may have no shape
            return f"a nested tensor of {value.dtype} and layout {value.layout}"
        layout = "" if value.layout is torch.strided else f", with layout {value.layout}"
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}{layout}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and {value.dtype}"
    if isinstance(value, torch.nn.Module):
        return f"the module {type(value).__name__}"
    try:
        text = repr(value)
    except Exception:  # a class may describe itself wrongly
        text = ""
    plain = 0 < len(text) < 80 and "\n" not in text and " object at 0x" not in text
    return text if plain else f"a {type(value).__name__}"


def check_whole(at_least: int | None = 1, at_most: int | None = None, /, **numbers: Any) -> None:
    """Refuse what is no whole number, or one below ``at_least`` or above ``at_most``, such as a loop without an end."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Integral | torch.SymInt):
            if isinstance(number, Tensor) and torch.jit.is_tracing():
                continue  # a size, in a graph being traced
            raise TypeError(f"{name} = {described(number)}: it must be a whole number")
        if at_least is not None and number < at_least:
            raise ValueError(f"{name} = {number}: it must be at least {at_least}")
        if at_most is not None and number > at_most:  # type: ignore[operator]
            raise ValueError(f"{name} = {number}: it must be at most {at_most}")


def check_number(finite: bool = True, /, **numbers: Any) -> None:
    """Refuse what is no number, and what is not ``finite``."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Real | torch.SymFloat):
            raise TypeError(f"{name} = {described(number)}: it must be a number")
        if finite and not math.isfinite(number):
            raise ValueError(f"{name} = {number}: it must be finite")


def check_flag(**flags: Any) -> None:
    """Refuse what is neither True nor False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} = {described(flag)}: it must be True or False")


def check_tensor(*axes: int, **tensors: Any) -> None:
    """Refuse what is no tensor of floating-point numbers, or none with so many ``axes`` where any are named."""
    check_floating(*axes, **tensors)
    check_padded(**tensors)


def check_floating(*axes: int, **tensors: Any) -> None:
    """Refuse the same as :func:`check_tensor`, but for nested tensors, where torch has a kernel for them."""
    for name, x in tensors.items():
        check_is_tensor(name, x)
        if not x.is_floating_point():
            raise TypeError(f"{name} has dtype {x.dtype}, but must be floating point: convert it with .float()")
        if axes and x.ndim not in axes:
            wanted = " or ".join(map(str, axes))
            raise ValueError(f"{name} has shape {tuple(x.shape)}, but must have {wanted} axes")


def check_is_tensor(name: str, x: Any) -> None:
    """Refuse lists, arrays and all else that is no tensor, and tensors that are not dense."""
    if not isinstance(x, Tensor):
        way = f"use torch.as_tensor({name})" if name.isidentifier() else "torch.as_tensor makes one"
        raise TypeError(f"{name} is {type(x).__name__}, but must be a tensor: {way}")
    if x.layout is torch.strided and not x.is_nested:
        return
    if x.layout is not torch.jagged:
        way = f"torch.nested.to_padded_tensor({name}, 0.0)" if x.is_nested else f"{name}.to_dense()"
        raise TypeError(f"{name} is {described(x)}, but must be dense: use {way}")


def check_padded(**tensors: Tensor) -> None:
    """Refuse nested tensors, where torch has no kernel for what comes next."""
    for name, x in tensors.items():
        if x.is_nested:
            raise ValueError(
                f"{name} is {described(x)}: pad it with torch.nested.to_padded_tensor({name}, 0.0), and hide the "
                "padding with mask=mha.padding_mask(lengths)"
            )


def check_functions(**functions: Any) -> None:
    """Refuse what cannot be called; None is no function, and allowed."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            _refuse(name, function, "a function")


def check_result(name: str, result: Any, shape: tuple[int, ...]) -> None:
    """Refuse what a function of the caller's returned, unless it is a tensor of this shape; -1 means any size."""
    fits = isinstance(result, Tensor) and len(shape) == result.ndim
    if not fits or any(wanted not in (-1, size) for wanted, size in zip(shape, result.shape, strict=True)):
        sizes = ", ".join("any" if size < 0 else str(size) for size in shape)
        raise ValueError(f"{name} returned {described(result)}: it must return a tensor of shape ({sizes})")


def check_finite(**tensors: Any) -> None:
    """Refuse tensors with NaN or infinity in them, and those on the meta device, which hold no numbers."""
    for name, x in tensors.items():
        if x.is_meta:
            raise ValueError(f"{name} is on the meta device: it has a shape {tuple(x.shape)}, but no numbers")
        if not bool(x.isfinite().all()):
            raise ValueError(f"{name} of shape {tuple(x.shape)} holds NaN or infinity: find out where they come from")


def check_no_nan(name: str, x: Tensor) -> None:
    """Refuse tensors with NaN in them, which no order knows."""
    if not x.is_meta and bool(x.isnan().any()):
        raise ValueError(f"{name} of shape {tuple(x.shape)} holds NaN: find out where it comes from")


def check_like_weights(name: str, x: Tensor, weight: Tensor, owner: torch.nn.Module | None = None) -> None:
    """Refuse numbers of another type or device than the weights; autocast may mix types.

    Where the owner of the weights has hooks, or a ``forward`` put in the place of its own, these may bring both
    together, as in offloading: then nothing is refused.
    """
    if x.device == weight.device and x.dtype == weight.dtype:
        return
    if owner is not None and ("forward" in vars(owner) or owner._forward_pre_hooks):
        return
    if x.device != weight.device:
        raise ValueError(
            f"{name} is on {x.device}, but the weights are on {weight.device}: use {name}.to('{weight.device}') or "
            f"layer.to('{x.device}')"
        )
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"{name} has dtype {x.dtype}, but the weights have {weight.dtype}: use {name}.to({weight.dtype}) or "
            f"layer.to({x.dtype})"
        )


def check_device(device: Any) -> None:
    """Refuse what names no device; None is the one torch uses by itself."""
    if device is not None and not isinstance(device, torch.device | str):
        raise TypeError(f"device = {described(device)}: it must be a torch.device, or a text such as 'cpu'")
    if isinstance(device, str):
        try:
            torch.device(device)
        except RuntimeError as error:
            raise ValueError(f"device = {device!r}: torch knows no such device ({str(error)[:60]} …)") from error


_WATCH = 'here: with mha.watch(layer, "weights") as seen: layer(x), and then seen.weights, head by head'
_CACHE = "here: cache=layer.new_cache(), one for each layer"
_MODEL, _HEADS, _KV = "here: d_model", "here: heads", "here: kv_heads, of mha.GroupedAttention"
_NONE = "no layer has a longest sequence: leave it out"
ELSEWHERE = {  # keywords of other libraries, and the way to the same thing here
    "need_weights": _WATCH, "average_attn_weights": f"{_WATCH}; seen.weights.mean(1) is the average",
    "output_attentions": _WATCH, "return_attention_scores": _WATCH,
    "attn_mask": "here: mask, boolean, True = may look; from_hidden and from_additive of mha.functional.masks convert",
    "key_padding_mask": "here: mask=mha.padding_mask(lengths, n), or from_key_padding(from_hidden(m)) of "
    "mha.functional.masks",
    "attention_mask": "here: mask, True = may look; mha.functional.masks.from_key_padding(m.bool()) for a tokenizer's",
    "use_causal_mask": "here: is_causal=True", "causal": "here: is_causal=True, in every call",
    "past_key_values": _CACHE, "past_key_value": _CACHE, "layer_past": _CACHE, "use_cache": _CACHE,
    "hidden_states": "here: query, the first argument",
    "embed_dim": _MODEL, "hidden_size": _MODEL, "n_embd": _MODEL, "d_in": _MODEL,
    "d_out": f"{_MODEL}: input and output are equally wide",
    "num_heads": _HEADS, "n_heads": _HEADS, "n_head": _HEADS, "nhead": _HEADS, "num_attention_heads": _HEADS,
    "num_kv_heads": _KV, "n_kv_heads": _KV, "num_key_value_heads": _KV,
    "head_dim": "here: d_head", "key_dim": "here: d_head", "value_dim": "here: d_head",
    "qkv_bias": 'here: bias, True, False or some of the letters "qkvo"; bias="o" is qkv_bias=False',
    "attention_dropout": "here: dropout", "attn_drop": "here: dropout", "dropout_p": "here: dropout",
    "batch_first": "the batch always comes first; mha.interop.SeqFirst(layer) takes (token, batch, channel)",
    "context_length": _NONE, "block_size": _NONE, "max_seq_len": _NONE, "max_position_embeddings": _NONE,
}  # fmt: skip
ELSEWHERE_ONLY = frozenset(ELSEWHERE)  # torch.compile cannot ask a dict's keys whether they are disjoint


def refuse_elsewhere(name: str, keywords: list[str]) -> None:
    """Refuse keywords that other libraries have, and say what does the same here.

    :param name: what was called.
    :param keywords: those that it does not have; the others are left to Python.
    """
    known = [f"{keyword} ({ELSEWHERE[keyword]})" for keyword in keywords if keyword in ELSEWHERE]
    if known:
        raise TypeError(
            f'{name} has no keyword {", ".join(known)}. The page "Coming from another library" lists both sides'
        )


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that are not what the function's annotations say, by name and with what was given.

    Checked are whole and other numbers (no NaN, no infinity), truth values, texts, functions, modules, tensors with
    their kind of numbers and their number of axes, and what lists, tuples and mappings hold. What must lie in a range
    the function says itself.

    :param function: the function, with annotations.
    """
    parameters = list(inspect.signature(function).parameters.values())
    rules = {p.name: _rule(p.annotation) for p in parameters if p.name != "mask"}  # check_mask says more
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    defaults = {p.name: p.default for p in parameters}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs and not ELSEWHERE_ONLY.isdisjoint(kwargs):
            refuse_elsewhere(function.__qualname__, [name for name in kwargs if name not in defaults])
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            rule = rules.get(name)
            if rule is not None and value is not defaults[name]:
                rule(name, value)
        try:
            return function(*args, **kwargs)
        except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
            refuse_sizes(error, {**dict(zip(names, args, strict=False)), **kwargs})
            raise

    return call


def refuse_sizes(error: Exception, given: Mapping[str, Any]) -> None:
    """Say which whole numbers asked for too much, where an error is of memory and they are large.

    :param error: what was raised.
    :param given: the arguments, by their names.
    """
    large = [f"{name} = {n}" for name, n in given.items() if isinstance(n, Integral) and int(n) >= LARGE]
    if large and (
        isinstance(error, MemoryError) or re.search("allocate memory|[Oo]verflow|be represented", str(error))
    ):
        raise ValueError(f"{', '.join(large)}: there is no memory for so much, take fewer") from error


def _rule(annotation: Any) -> Rule | None:
    """Make the check of one annotation; None where nothing is known about it."""
    if annotation is inspect.Parameter.empty:
        return None
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    if torch.device in options:
        return lambda name, value: check_device(value)
    rules = [_KINDS.get(one) or _rule_of_class(one) for one in options if one is not types.NoneType]
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):
        return None
    one = known[0] if len(known) == 1 else functools.partial(_any, known)
    return (lambda name, value: None if value is None else one(name, value)) if len(rules) < len(options) else one


def _any(rules: list[Rule], name: str, value: Any) -> None:
    """Refuse what no rule takes, and list all that would do."""
    errors = []
    for rule in rules:
        try:
            rule(name, value)
        except TypeError as error:
            errors.append(error)
        else:
            return
    if isinstance(value, Tensor):
        raise errors[0]
    _refuse(name, value, ", or ".join(str(error).partition("must be ")[2] for error in errors))


def _rule_of_class(kind: Any) -> Rule | None:
    origin = typing.get_origin(kind) or kind
    if origin is Callable or origin is collections.abc.Callable:
        return lambda name, value: check_functions(**{name: value})
    if not isinstance(origin, type) or origin in (object, Any):
        return None
    if issubclass(origin, jaxtyping.AbstractArray):
        return functools.partial(_check_array, kind.dtype, kind.dim_str.split())
    wanted = (list, tuple) if origin is list else origin
    # since Python 3.12 `isinstance` looks for what a protocol names past `__getattr__`, where a module has its parts
    names = typing.get_type_hints(origin) if getattr(origin, "_is_protocol", False) else {}
    inside = [_rule(part) for part in typing.get_args(kind) if part is not Ellipsis]

    def check(name: str, value: Any) -> None:
        if not (all(hasattr(value, part) for part in names) if names else isinstance(value, wanted)):
            _refuse(name, value, _ONE.get(origin.__name__, f"a {origin.__name__}"))
        if isinstance(value, str | bytes) and any(inside) and str not in typing.get_args(kind):
            _refuse(name, value, "a list, a tuple or the like")  # not its letters or bytes, one by one
        if any(inside) and not isinstance(value, collections.abc.Iterator):
            _check_inside(inside, name, value)

    return check


def _check_inside(rules: list[Rule | None], name: str, value: Any) -> None:
    """Refuse a list, a tuple or a mapping that holds something else than its annotation says."""
    parts: list[tuple[Rule | None, Any]]
    if isinstance(value, Mapping):
        parts = list(zip(rules, (list(value), list(value.values())), strict=False))
    elif isinstance(value, Tensor | np.ndarray) and (value.ndim != 1 or getattr(value, "is_meta", False)):
        _refuse(name, value, "one row of its entries")
    elif len(rules) > 1:
        if len(value) != len(rules):
            _refuse(name, value, f"a tuple of {len(rules)}")
        parts = [(rule, [item]) for rule, item in zip(rules, value, strict=True)]
    else:
        parts = [(rules[0], value.tolist() if isinstance(value, Tensor | np.ndarray) else value)]
    for rule, items in parts:
        if rule is not None:
            for item in items:
                rule(f"an entry of {name}", item)


def _check_array(kind: Any, axes: list[str], name: str, value: Any) -> None:
    """Refuse what is no tensor of this kind of numbers and with these axes."""
    check_is_tensor(name, value)
    check_padded(**{name: value})
    fits = {
        jaxtyping.Float: value.is_floating_point(),
        jaxtyping.Bool: value.dtype == torch.bool,
        jaxtyping.Int: value.dtype in (torch.int64, torch.int32, torch.int16, torch.int8),
    }
    if not fits.get(kind, True):
        raise TypeError(f"{name} has dtype {value.dtype}, but must be {_NUMBERS[kind]}")
    if not any(axis == "..." or axis.startswith("*") for axis in axes) and value.ndim != len(axes):
        raise ValueError(f"{name} has shape {tuple(value.shape)}, but must be ({', '.join(axes)})")


def _refuse(name: str, value: Any, word: str) -> NoReturn:
    raise TypeError(f"{name} = {described(value)}: it must be {word}")


_ONE = {  # what an annotation's class is called in an error
    "str": "a text",
    "Mapping": "a mapping, such as a dict",
    "Sequence": "a sequence, such as a list",
    "Iterable": "something to go through, such as a list",
    "Module": "a module of torch",
    "dtype": "a dtype of torch",
    "Optimizer": "an optimizer of torch",
}
_NUMBERS = {
    jaxtyping.Float: "floating point, such as embedded tokens, or use .float()",
    jaxtyping.Bool: "torch.bool",
    jaxtyping.Int: "whole numbers with a sign, such as torch.long",
}
_KINDS: dict[Any, Rule] = {
    int: lambda name, value: check_whole(None, **{name: value}),
    float: lambda name, value: check_number(**{name: value}),
    bool: lambda name, value: check_flag(**{name: value}),
    Tensor: check_is_tensor,
}
