"""What an attention of ``transformers`` is made of, whatever its class: projections, norms, sinks, positions, scale.

Models give the same parts other names, and join projections in other orders. What the parts leave open (which rows are
queries, which channels rotary positions pair, whether a gain is added to 1) gives one plan each, and
:mod:`mha.interop.structure` tries them.

:Taught in: in_the_transformer.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.interop.endings import ending_of
from mha.interop.plan import Plan, biases
from mha.interop.rotary import GivenBias, rotary_of
from mha.layers.positions import LAYOUTS, RelativePositions
from mha.layers.projections import as_linear

INSIDE = ("self", "attn", "attention")  # where BERT and MPNet keep their heads
SEPARATE = (
    ("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v"),
    ("query_proj", "key_proj", "value_proj"), ("to_q", "to_k", "to_v"), ("wq", "wk", "wv"),
    ("q_linear", "k_linear", "v_linear"), ("linear_q", "linear_k", "linear_v"), ("queries", "keys", "values"),
    ("W_q", "W_k", "W_v"),
)  # fmt: skip
JOINED = ("qkv_proj", "query_key_value", "Wqkv", "qkv", "in_proj", "qkv_linear", "W_pack", "c_attn", "to_qkv")
OUT = (
    "o_proj", "out_proj", "dense", "Wo", "out_lin", "o", "proj", "projection", "out_linear", "linear_out", "wo",
    "to_out", "output_dense", "c_proj", "projection_layer", "out", "proj_out", "output_proj",
)  # fmt: skip
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
WIDTH = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim", "d_kv", "dim_per_head")
SCALE = ("scaling", "scale", "softmax_scale", "inv_norm_factor")
DROPOUT = ("attention_dropout", "attn_dropout", "dropout", "dropout_p", "attn_drop", "dropout_prob")
NORMS = (
    ("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_layernorm", "key_layernorm"), ("q_ln", "k_ln"),
    ("norm_q", "norm_k"), ("query_norm", "key_norm"),
)  # fmt: skip
CAP = ("attn_logit_softcapping", "softcap")


@checked
def inside_of(module: nn.Module) -> Any:
    """Return the module with the projections: this one, or one inside it.

    :param module: any module.
    """
    return next((one for name in INSIDE if isinstance(one := getattr(module, name, None), nn.Module)), module)


@checked
def found(module: nn.Module, names: tuple[str, ...], kind: type | tuple[type, ...]) -> Any:
    """Return the first of several attributes that a module has, of one kind; None where it has none of them.

    :param module: any module.
    :param names: the names, in the order in which they are looked up.
    :param kind: the class that the attribute must have.
    """
    values = (getattr(module, name, None) for name in names)
    return next((one for one in values if isinstance(one, kind) and not isinstance(one, bool)), None)


@checked
def projections_of(module: nn.Module) -> dict[str, nn.Module]:
    """Return the projections of an attention by the letters q, k, v and o, or qkv and o where three are joined.

    :param module: any module; one without such projections gives an empty dictionary.
    """
    inside = inside_of(module)
    output = getattr(module, "output", None)
    places = (inside, module, *([output] if isinstance(output, nn.Module) else []))
    out = next((one for place in places if (one := found(place, OUT, nn.Module)) is not None), None)
    if isinstance(out, nn.Sequential) and all(isinstance(x, nn.Dropout | nn.Identity) for x in list(out)[1:]):
        out = next(iter(out), None)
    if out is None:
        return {}
    for names in SEPARATE:
        parts = [getattr(inside, name, None) for name in names]
        if all(isinstance(part, nn.Module) and width_of(part) for part in parts):
            return dict(zip("qkvo", (*parts, out), strict=True))
    joined = found(inside, JOINED, nn.Module)
    return {"qkv": joined, "o": out} if joined is not None and width_of(joined) else {}


@checked
def width_of(part: nn.Module | None) -> int | None:
    """Return the width of what a projection reads, or None where it is no linear map.

    :param part: a projection, perhaps with an adapter around it.
    """
    if not isinstance(part, nn.Module):
        return None
    widths = (getattr(one, "in_features", None) for one in part.modules())
    return next((width for width in widths if isinstance(width, int)), None)


@checked
def has_parts(module: nn.Module) -> bool:
    """Whether a module could be an attention: it has four projections, joined or not, and knows how many heads it has.

    :param module: any module.
    """
    parts, inside = projections_of(module), inside_of(module)
    if not parts or found(inside, HEADS + WIDTH, int) is None or "hidden_states" not in arguments(module):
        return False
    own = {id(one) for part in (inside, parts["o"], ending_of(module)) for one in part.parameters()}
    return all(id(one) in own for one in module.parameters())  # a block has a feed-forward network, too


@checked
def arguments(module: nn.Module) -> tuple[str, ...]:
    """Return the names of what a module's forward takes.

    :param module: any module.
    """
    return tuple(inspect.signature(type(module).forward).parameters)


@checked
def parts_plans(module: nn.Module) -> Iterator[Plan]:
    """Make every plan that the parts of a module allow, the commonest first.

    :param module: an attention with :func:`has_parts`.
    :Raises: ValueError where the projections do not fit together.
    """
    inside = inside_of(module)
    linears = {letter: as_linear(part, f"the projection {letter}") for letter, part in projections_of(module).items()}
    inner = linears["o"].in_features
    d_head = found(inside, WIDTH, int) or inner // found(inside, HEADS, int)
    if not d_head or inner % d_head:
        raise ValueError(f"{inner} channels of the output projection are no whole heads of width {d_head}")
    sizes: dict[str, Any] = {"heads": inner // d_head, "d_head": d_head, "dropout": _dropout_of(inside)}
    scale = found(inside, SCALE, float)
    if scale is not None and abs(scale * d_head**0.5 - 1) > 1e-6:
        sizes["scale"] = scale
    for weights in _cuts(linears, sizes["heads"], d_head):
        for more, norms in _extras(inside, sizes["heads"], d_head):
            for positions, inside_only in _positions_of(module, inside, d_head):
                yield _complete(type(module).__name__, sizes, {**weights, **norms}, more, positions, inside_only)


def _complete(
    name: str,
    sizes: dict[str, Any],
    weights: dict[str, Tensor],
    more: dict[str, Any],
    positions: RelativePositions | None,
    inside_only: list[str],
) -> Plan:
    """Add what the parameters themselves tell: the widths of the inputs, the KV heads, and which have biases."""
    widths = {"d_model": "W_q.weight", "kdim": "W_k.weight", "vdim": "W_v.weight"}
    told = {size: weights[weight].shape[-1] for size, weight in widths.items()}
    told["kv_heads"] = weights["W_k.weight"].numel() // told["kdim"] // sizes["d_head"]
    plain = {"norm_eps": None, "norm_offset": 0.0, "gated": False, "sinks": False, "softcap": None, "norm_whole": False}
    released = plain | more if more or "W_g.weight" in weights else {}
    if "W_g.weight" in weights:
        released["gated"] = True
    return Plan(name, sizes | told | {"bias": biases(weights)} | released, weights, {}, positions, inside_only)


def _cuts(linears: dict[str, nn.Linear], heads: int, d_head: int) -> Iterator[dict[str, Tensor]]:
    """Name the matrices and biases of q, k, v and o as views; joined ones in each order that their sizes allow."""
    out = {f"W_o.{name}": parameter for name, parameter in linears["o"].named_parameters()}
    if "qkv" not in linears:
        named: dict[str, Tensor] = {f"W_{x}.{name}": p for x in "qkv" for name, p in linears[x].named_parameters()}
        if linears["q"].out_features == 2 * heads * d_head and linears["q"].bias is None:  # each head's gate beside it
            both = linears["q"].weight.detach().unflatten(0, (heads, 2, d_head))
            named |= {"W_q.weight": both[:, 0], "W_g.weight": both[:, 1]}
        yield named | out
        return
    joined = dict(linears["qkv"].named_parameters())
    groups = (len(joined["weight"]) // d_head - heads) // 2
    if groups < 1 or len(joined["weight"]) != (heads + 2 * groups) * d_head or heads % groups:
        raise ValueError(f"{len(joined['weight'])} joined rows are no queries, keys and values of {heads} heads")
    yield {
        f"W_{letter}.{name}": part
        for name, p in joined.items()
        for letter, part in zip("qkv", p.detach().split([n * d_head for n in (heads, groups, groups)]), strict=True)
    } | out
    by_group: dict[str, Tensor] = {}  # the query heads of a group, then its key, then its value
    for name, parameter in joined.items():
        parts = parameter.detach().unflatten(0, (groups, heads // groups + 2, d_head))
        by_group |= {f"W_q.{name}": parts[:, :-2], f"W_k.{name}": parts[:, -2], f"W_v.{name}": parts[:, -1]}
    yield by_group | out


def _extras(inside: nn.Module, heads: int, d_head: int) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """Make the options and parameters of norms, sinks and a soft cap, for each way to read a norm's gain."""
    more: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    cap, sinks = found(inside, CAP, (float, int)), getattr(inside, "sinks", None)
    if cap is not None:
        more["softcap"] = float(cap)
    if isinstance(sinks, Tensor):
        more["sinks"], weights["sinks"] = True, sinks.detach()
    pairs = ([getattr(inside, name, None) for name in names] for names in NORMS)
    norms = next((pair for pair in pairs if all(isinstance(one, nn.Module) for one in pair)), [])
    gains = [gain for norm in norms if isinstance(gain := getattr(norm, "weight", None), Tensor) and gain.ndim == 1]
    if len(gains) < 2:
        yield more, weights
        return
    eps = next((e for name in ("variance_epsilon", "eps", "epsilon") if (e := getattr(norms[0], name, None))), None)
    weights |= {"W_q.norm": gains[0].detach(), "W_k.norm": gains[1].detach()}
    more |= {"norm_eps": eps or torch.finfo(torch.float32).eps, "norm_whole": len(gains[0]) != d_head}
    for offset in (0.0, 1.0):
        yield more | {"norm_offset": offset}, weights


def _positions_of(module: nn.Module, inside: Any, d_head: int) -> Iterator[tuple[RelativePositions | None, list[str]]]:
    """Make every kind of positions that the module's inputs allow."""
    names = arguments(module)
    if "position_bias" in names:
        yield GivenBias(), ["the model passes a bias for each pair of positions, which a layer alone cannot know"]
    if "position_embeddings" in names and hasattr(inside, "config"):
        for layout in LAYOUTS:
            positions, inside_only = rotary_of(inside, d_head)
            positions.layout = layout
            yield positions, inside_only
    yield None, []


def _dropout_of(inside: nn.Module) -> float:
    """Return the rate of the weights' dropout in training."""
    rate = found(inside, DROPOUT, (float, nn.Dropout))
    return float(rate.p if isinstance(rate, nn.Dropout) else rate or 0.0)
