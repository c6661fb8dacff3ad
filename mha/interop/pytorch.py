"""Parameters to and from ``nn.MultiheadAttention``.

:Taught in: in_the_transformer.
"""

from torch import nn

from mha.checks import checked
from mha.interop.plan import Plan, biases, build, read, refuse, sizes_of, write
from mha.layers.multi_head import Heads

NAME = "nn.MultiheadAttention"


OPTIONS = {"d_model": "embed_dim", "heads": "num_heads", "kdim": "kdim", "vdim": "vdim"}


OPTIONS |= {"bias": "bias", "dropout": "dropout"}


@checked
def from_torch(module: nn.MultiheadAttention, *, into: Heads | None = None) -> Heads:
    """Make our layer from torch's: the same parameters, the same numbers.

    Torch's masks say the opposite of ours, True = hide: :func:`mha.functional.masks.from_hidden` converts them.

    :param module: torch's layer, batch first.
    :param into: a layer of the same sizes that is filled instead; a new one is made unless given.
    :Shapes: returns a layer that is called with (b, n, d_model).
    :Raises: ValueError where an option has no counterpart (``add_bias_kv``, ``add_zero_attn``), for a module that is
        not batch first, and where ``into`` has other sizes.
    :Taught in: in_the_transformer.
    """
    plan = torch_plan(module)
    layer = build(plan) if into is None else read(plan, into)
    return layer.train(module.training) if into is None else layer


@checked
def to_torch(layer: Heads) -> nn.MultiheadAttention:
    """Make torch's layer from ours: batch first, the same parameters, the same numbers.

    :param layer: a plain layer of ours.
    :Raises: ValueError where ours has what torch's has not: positions, shared heads, heads of another width than
        d_model / heads, biases in some of the projections only.
    :Taught in: in_the_transformer.
    """
    s = sizes_of(layer)
    reasons = {
        f"d_head = {s['d_head']}, but it has heads of d_model / heads = {s['d_model'] / s['heads']:g} channels only": (
            s["d_head"] * s["heads"] != s["d_model"]
        ),
        f"kv_heads = {s['kv_heads']}, but it has as many KV heads as query heads": s["kv_heads"] != s["heads"],
        f"positions are {s['positions']}, but it has no place for them": layer.positions is not None,
        f"bias = {s['bias']!r}, but it has biases in all projections or in none": s["bias"] not in ("", "qkvo"),
    }
    refuse(NAME, [reason for reason, holds in reasons.items() if holds], "Make the layer without these.")
    module = nn.MultiheadAttention(
        s["d_model"], s["heads"], s["dropout"], bool(s["bias"]), kdim=s["kdim"], vdim=s["vdim"], batch_first=True
    ).to(layer.W_q.weight)
    write(layer, torch_plan(module))
    return module.train(layer.training)


@checked
def torch_plan(module: nn.MultiheadAttention) -> Plan:
    """Describe torch's layer in this package's words.

    :param module: torch's layer, batch first.
    """
    reasons = {
        "add_bias_kv adds a learned key and value to every sequence; our layers have none": module.bias_k is not None,
        "add_zero_attn adds a key and a value of zeros; our layers have none": module.add_zero_attn,
        "batch_first=False: its inputs are (sequence, batch, channel). Set module.batch_first = True, the "
        "parameters stay the same, and wrap our layer in SeqFirst to keep calling it as before": not module.batch_first,
        f"{type(module).__name__} is not {NAME} itself": type(module) is not nn.MultiheadAttention,
    }
    refuse(NAME, [reason for reason, holds in reasons.items() if holds], "Change these and convert again.")
    if module.in_proj_weight is None:
        packed = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    else:
        packed = module.in_proj_weight.detach().chunk(3)
    weights = dict(zip(("W_q.weight", "W_k.weight", "W_v.weight"), packed, strict=True))
    weights["W_o.weight"] = module.out_proj.weight
    if module.in_proj_bias is not None:
        names = ("W_q.bias", "W_k.bias", "W_v.bias", "W_o.bias")
        weights |= dict(zip(names, (*module.in_proj_bias.detach().chunk(3), module.out_proj.bias), strict=True))
    sizes = {"d_model": module.embed_dim, "heads": module.num_heads, "kv_heads": module.num_heads}
    sizes |= {"d_head": module.head_dim, "kdim": module.kdim, "vdim": module.vdim}
    return Plan(NAME, sizes | {"bias": biases(weights), "dropout": module.dropout}, weights, OPTIONS)
