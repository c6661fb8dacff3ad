"""What another library's attention is, said in this package's words, and how parameters move to and fro.

A plan lists the sizes and options of a module, and its parameters as *views*: reading copies from them, writing copies
into them, so that both directions cannot disagree.

:Taught in: in_the_transformer.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.interop.released import ReleasedAttention
from mha.layers.grouped import GroupedAttention
from mha.layers.indexed import IndexedLatentAttention
from mha.layers.latent import LatentAttention
from mha.layers.multi_head import Heads, MultiHeadAttention
from mha.layers.positions import RelativePositions
from mha.layers.projections import check_own_weights, settled


@dataclass(frozen=True)
class Plan:
    """One module of another library: its name, sizes and parameters by our names, and its own option names."""

    library: str
    sizes: dict[str, Any]
    weights: dict[str, Tensor]
    options: dict[str, str] = field(default_factory=dict)
    positions: RelativePositions | None = None
    inside_only: list[str] = field(default_factory=list)  # what is right only where the model passes its own angles


@checked
def biases(weights: dict[str, Tensor]) -> str:
    """Return the letters of the projections that have a bias.

    :param weights: of a plan or a layer, by our names.
    """
    return "".join(letter for letter in "qkvo" if f"W_{letter}.bias" in weights)


@checked
def sizes_of(layer: Heads) -> dict[str, Any]:
    """Say what a layer of this package is, in the words that a plan uses.

    :param layer: a layer of ours.
    """
    own: dict[str, Any] = {}
    if isinstance(layer, LatentAttention):
        own = {name: getattr(layer, name) for name in ("d_latent", "d_rotary", "d_query", "norm")}
    if isinstance(layer, IndexedLatentAttention):
        index = layer.indexer
        own |= {"k": index.k, "index_heads": index.heads, "d_index": index.d, "index_layout": index.layout}
        own |= {"block": index.block, "pool": index.pool}
    if isinstance(layer, ReleasedAttention):
        own = {name: getattr(layer, name) for name in ("norm_eps", "norm_offset", "gated", "softcap", "norm_whole")}
        own["sinks"] = layer.sinks is not None
    return {
        **own,
        "d_model": layer.d_model,
        "heads": layer.heads,
        "kv_heads": layer.kv_heads,
        "d_head": layer.d_head,
        "kdim": layer.W_k.in_features,
        "vdim": layer.W_v.in_features,
        "bias": biases(dict(layer.named_parameters())),
        "dropout": layer.dropout,
        "scale": layer.scale,
        "positions": kind_of_positions(layer.positions),
    }


@checked
def kind_of_positions(positions: nn.Module | None) -> str:
    """Write positions so that two of them are equal exactly when their text is.

    :param positions: what acts inside a layer, or None.
    """
    return "none" if positions is None else f"{positions}, angles in {getattr(positions, 'precision', 'no precision')}"


@checked
def build(plan: Plan) -> Heads:
    """Make a layer of this package with the plan's sizes and parameters.

    :param plan: of a module that has a counterpart here.
    """
    check_shapes(plan)
    sizes = dict(plan.sizes)
    d_model, heads, kv_heads = (sizes.pop(name) for name in ("d_model", "heads", "kv_heads"))
    scale = sizes.pop("scale", None)
    layer: Heads
    if "d_latent" in sizes:
        sizes = {name: size for name, size in sizes.items() if name not in ("kdim", "vdim")}
        kind = IndexedLatentAttention if "index_heads" in sizes else LatentAttention
        layer = kind(d_model, heads, positions=plan.positions, **sizes)
    elif "sinks" in sizes:
        layer = ReleasedAttention(d_model, heads, kv_heads, positions=plan.positions, **sizes)
    elif kv_heads != heads:
        layer = GroupedAttention(d_model, heads, kv_heads, positions=plan.positions, **sizes)
    else:
        layer = MultiHeadAttention(d_model, heads, positions=plan.positions, **sizes)
    layer.scale = scale
    return read(plan, layer.to(plan.weights["W_q.weight"]))


@checked
@torch.no_grad()
def read(plan: Plan, layer: Heads) -> Heads:
    """Copy the plan's parameters into a layer that fits.

    :param plan: whose parameters are copied.
    :param layer: a layer of ours; it is changed in place and returned.
    """
    check_own_weights(layer)
    check_fit(layer, plan)
    for name, weight in layer.named_parameters():
        weight.copy_(plan.weights[name].reshape(weight.shape))
    return layer


@checked
@torch.no_grad()
def write(layer: Heads, plan: Plan) -> None:
    """Copy a layer's parameters into the module of the plan, where they fit.

    :param layer: whose parameters are copied.
    :param plan: of the module that is changed in place.
    """
    layer = settled(layer)
    check_fit(layer, plan)
    for name, weight in layer.named_parameters():
        plan.weights[name].copy_(weight.view(plan.weights[name].shape))


def check_shapes(plan: Plan) -> None:
    """Refuse a module whose parameters are not as large as its own options say."""
    s = plan.sizes
    inner, shared = s["heads"] * s["d_head"], s["kv_heads"] * s["d_head"]
    need: dict[str, tuple[int, ...]] = {
        "W_q": (inner, s["d_model"]),
        "W_k": (shared, s["kdim"]),
        "W_v": (shared, s["vdim"]),
    }
    need |= {"W_o": (s["d_model"], inner)}
    if "d_latent" in s:
        asked, rotated = s["d_query"] or s["d_model"], s["d_rotary"]
        need |= {
            "W_q": (inner, asked),
            "W_rotary_q": (s["heads"] * rotated, asked),
            "W_rotary_k": (rotated, s["d_model"]),
        }
        need |= {"W_down": (s["d_latent"], s["d_model"]), "W_down_q": (s["d_query"], s["d_model"])}
        need |= {"norm_latent": (s["d_latent"],), "norm_query": (s["d_query"],)}
    if "index_heads" in s:
        need |= {"indexer.W_q": (s["index_heads"] * s["d_index"], s["d_query"] or s["d_model"])}
        need |= {"indexer.W_k": (s["d_index"], s["d_model"]), "indexer.W_w": (s["index_heads"], s["d_model"])}
        need |= {"indexer.norm": (s["d_index"],)}
    whole = s.get("norm_whole", False)
    alone = {"W_q.norm": (inner if whole else s["d_head"],), "W_k.norm": (shared if whole else s["d_head"],)}
    alone["sinks"] = (s["heads"],)
    need |= {"W_g": (inner, s["d_model"])}
    found = {  # a view of joined rows has one axis more for the heads
        name: weight.flatten() if name.endswith("bias") else weight.flatten(0, -2) if weight.ndim > 2 else weight
        for name, weight in plan.weights.items()
    }
    wrong = [
        f"{name} has shape {tuple(weight.shape)}, but its options ask for {shape}"
        for name, weight in found.items()
        if tuple(weight.shape) != (shape := alone.get(name) or need[name.rpartition(".")[0]][: weight.ndim])
    ]
    refuse(plan.library, wrong, "Are the options (number of heads, widths) those of these parameters?")


def check_fit(layer: Heads, plan: Plan) -> None:
    """Refuse a layer and a module that differ in a size or an option, and name every difference."""
    kinds: tuple[type[Heads], ...] = (MultiHeadAttention, GroupedAttention)
    kinds = (LatentAttention,) if "d_latent" in plan.sizes else kinds
    kinds = (IndexedLatentAttention,) if "index_heads" in plan.sizes else kinds
    kinds = (ReleasedAttention,) if "sinks" in plan.sizes else kinds
    if type(layer) not in kinds:
        fit = " and ".join(kind.__name__ for kind in kinds) + (" fits" if len(kinds) == 1 else " fit")
        raise ValueError(f"{type(layer).__name__} computes something other than {plan.library}: only {fit}")
    check_shapes(plan)
    theirs = {"scale": None} | plan.sizes | {"positions": kind_of_positions(plan.positions)}
    wrong = [
        f"{name}: the layer has {ours!r}, {plan.library} has {theirs[name]!r}"
        + (f" (its option {plan.options[name]})" if name in plan.options else "")
        for name, ours in sizes_of(layer).items()
        if ours != theirs[name]
    ]
    refuse(plan.library, wrong, "Make one of the two anew with the other's values.")


@checked
def refuse(library: str, reasons: list[str], remedy: str) -> None:
    """Raise one error that names every reason.

    :param library: what an error calls the other side.
    :param reasons: one sentence for each; nothing happens where there is none.
    :param remedy: what to do, the last line of the error.
    """
    if reasons:
        raise ValueError(f"{library} does not fit:\n  - " + "\n  - ".join(reasons) + f"\n{remedy}")
