"""The delta layers of Qwen3-Next, Kimi Linear and OLMo Hybrid in ``transformers``: which number is which here.

Their layers join matrices and let several heads share queries and keys. Here each head has its own: shared ones are
copied on the way in, and on the way out the copies must still be equal.

:Taught in: overwrite.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.interop.plan import refuse
from mha.layers.linear import DeltaAttention, ShortConvolution
from mha.layers.multi_head import Heads
from mha.layers.projections import check_own_weights, settled

MODELS = {
    "Qwen3NextGatedDeltaNet": "Qwen3-Next",
    "KimiLinearDeltaAttention": "Kimi Linear",
    "OlmoHybridGatedDeltaNet": "OLMo Hybrid",
}
LENGTH_EPS = 1e-6  # theirs, added to squared lengths


@checked
def is_delta(module: nn.Module) -> bool:
    """Whether a module is one of the three delta layers of ``transformers`` that are known here.

    :param module: any module.
    """
    kind = type(module)
    return kind.__name__ in MODELS and kind.__module__.partition(".")[0] == "transformers"


@checked
@torch.no_grad()
def read_delta(module: Any, into: Heads | None = None) -> DeltaAttention:
    """Make our layer from a delta layer of ``transformers``; queries and keys that heads share are copied.

    Theirs computes the rule in float32 whatever the parameters: in float64 it agrees with ours to about 1e-7.

    :param module: an attention of one of the three classes.
    :param into: a layer of the same sizes and options that is filled instead; a new one is made unless given.
    :Raises: ValueError for another activation, and where ``into`` differs in a size or an option.
    """
    settings = settings_of(module)
    like = next(module.parameters())
    made = DeltaAttention(**settings, device=like.device, dtype=like.dtype) if into is None else into
    layer = check_alike(made, settings, type(module).__name__)
    for name, theirs in views_of(module, settings).items():
        ours = numbers_of(layer)[name]
        ours.copy_(theirs.reshape(ours.shape))
    return layer.train(module.training) if into is None else layer


@checked
@torch.no_grad()
def write_delta(layer: Heads, module: Any) -> Any:
    """Copy our layer's parameters into a delta layer of ``transformers``, which is changed and returned.

    :param layer: a layer of ours, such as :func:`read_delta` makes.
    :param module: an attention of one of the three classes.
    :Raises: ValueError for another activation, where a size or an option differs, and for heads that share queries and
        keys there but differ here; then nothing was copied.
    """
    check_own_weights(module)
    settings, name = settings_of(module), type(module).__name__
    layer = check_alike(settled(layer, *layer.of_heads), settings, name)
    ours, views = numbers_of(layer), views_of(module, settings)
    shared = [one for one, view in views.items() if 0 in view.stride()]
    unlike = [one for one in shared if not _all_alike(ours[one].view(views[one].shape))]
    reasons = [f"{one}: heads that share it there differ here" for one in unlike]
    refuse(name, reasons, "Make the module with keys of their own for all heads.")
    for one, view in views.items():
        mine = ours[one].reshape(view.shape)
        (view[:, 0] if one in shared else view).copy_(mine[:, 0] if one in shared else mine)
    return module


def _all_alike(x: Tensor) -> bool:
    return bool((x == x[:, :1]).all())


def settings_of(module: Any) -> dict[str, Any]:
    """Say with which keywords our layer is theirs.

    :param module: an attention of one of the three classes.
    """
    model, name = MODELS[type(module).__name__], type(module).__name__
    refuse(
        name,
        [f"hidden_act = {module.activation!r}: here it is SiLU"] * (module.activation not in ("silu", "swish")),
        "Make the module with a configuration without this, and convert again.",
    )
    of_kimi = model == "Kimi Linear"
    keys, values = (module.head_dim,) * 2 if of_kimi else (module.head_k_dim, module.head_v_dim)
    norm = module.norm if model == "Qwen3-Next" else module.o_norm
    return {
        "d_model": module.hidden_size,
        "heads": module.num_heads if of_kimi else module.num_v_heads,
        "d_head": keys,
        "d_value": values,
        "decay": "channel" if of_kimi else "head",
        "gate": "sigmoid" if of_kimi else "silu",
        "rank": keys if of_kimi else None,
        "negative_eigenvalues": bool(getattr(module, "allow_neg_eigval", False)),
        "convolution": module.conv_kernel_size,
        "activation": True,
        "norm": norm.variance_epsilon * keys,  # there q is divided by √d before the norm
        "eps": LENGTH_EPS,
        "bias": False,
        "write_bias": False,
    }


def check_alike(layer: Heads, settings: dict[str, Any], name: str) -> DeltaAttention:
    """Return the layer; refuse one that computes something else.

    :param layer: a layer of ours.
    :param settings: what it should be made with.
    :param name: what an error calls the other side.
    """
    if not isinstance(layer, DeltaAttention):
        raise ValueError(f"{type(layer).__name__} computes something other than {name}: only DeltaAttention fits")
    with torch.device("meta"):
        wanted = DeltaAttention(**settings)
    theirs = {one: tuple(x.shape) for one, x in numbers_of(wanted).items()}
    mine = {one: tuple(x.shape) for one, x in numbers_of(layer).items()}
    wrong = [
        f"{one}: the layer has {mine.get(one, 'none')}, {name} has {theirs.get(one, 'none')}"
        for one in dict.fromkeys([*theirs, *mine])
        if mine.get(one) != theirs.get(one)
    ]
    options = ("heads", "d_head", "d_value", "gate", "eps", "activation", "negative_eigenvalues", "erase")
    wrong += [
        f"{one}: the layer has {getattr(layer, one)!r}, {name} has {getattr(wanted, one)!r}"
        for one in options
        if getattr(layer, one) != getattr(wanted, one)
    ]
    if layer.norm is not None and wanted.norm is not None and layer.norm.eps != wanted.norm.eps:
        wrong.append(f"norm: the layer has {layer.norm.eps}, {name} has {wanted.norm.eps}")
    refuse(name, wrong, "Make one of the two anew with the other's values.")
    return layer


def numbers_of(layer: DeltaAttention) -> dict[str, Tensor]:
    """List the parameters of our layer by name, those of the convolution in three parts.

    :param layer: a delta layer.
    """
    found: dict[str, Tensor] = dict(layer.named_parameters())
    if isinstance(layer.convolve, ShortConvolution):
        parts = found.pop("convolve.weight").split(layer.convolve.parts)
        found |= {f"convolve.{letter}": part for letter, part in zip("qkv", parts, strict=True)}
    return found


def views_of(module: Any, settings: dict[str, Any]) -> dict[str, Tensor]:
    """Find each of our parameters in theirs: views, in which shared heads are expanded.

    :param module: an attention of one of the three classes.
    :param settings: what :func:`settings_of` said of it.
    """
    heads, d = settings["heads"], settings["d_head"]
    groups = heads if isinstance(getattr(module, "num_heads", None), int) else module.num_k_heads
    size = heads // groups

    def spread(rows: Tensor) -> Tensor:
        """Give each head the rows that its group shares: (groups · d, …) to (groups, size, d, …)."""
        rows = rows.reshape(groups, 1, d, -1) if rows.ndim == 2 else rows[:, None]
        return rows.expand(-1, size, -1, -1) if size > 1 else rows

    queries, keys, values = (
        module.conv1d.weight.detach().squeeze(1).split([groups * d] * 2 + [heads * settings["d_value"]])
    )
    found = {"convolve.q": spread(queries), "convolve.k": spread(keys), "convolve.v": values}
    if settings["decay"] == "channel":
        forget = module.forget_gate
        maps = {
            "W_q": module.q_proj, "W_k": module.k_proj, "W_v": module.v_proj, "W_o": module.o_proj,
            "write": module.b_proj, "decay.down": forget.f_a_proj, "decay.up": forget.f_b_proj,
            "gate_down": module.g_a_proj, "W_g": module.g_b_proj, "norm": module.o_norm,
        }  # fmt: skip
        found |= {f"{name}.weight": one.weight.detach() for name, one in maps.items()}
        return found | {"decay.up.bias": forget.dt_bias.detach(), "decay.rate": forget.A_log.detach()}
    found |= {"decay.up.bias": module.dt_bias.detach(), "decay.rate": module.A_log.detach()}
    if hasattr(module, "in_proj_qkvz"):
        wide = size * settings["d_value"]
        joined = module.in_proj_qkvz.weight.detach().unflatten(0, (groups, 2 * d + 2 * wide))
        q, k, v, gate = joined.split([d, d, wide, wide], 1)
        write, decay = module.in_proj_ba.weight.detach().unflatten(0, (groups, 2 * size)).split(size, 1)
        norm, output = module.norm, module.out_proj
    else:
        q, k = module.q_proj.weight.detach(), module.k_proj.weight.detach()
        v, gate, write, decay = (
            one.weight.detach() for one in (module.v_proj, module.g_proj, module.b_proj, module.a_proj)
        )
        norm, output = module.o_norm, module.o_proj
    found |= {"W_q.weight": spread(q), "W_k.weight": spread(k), "W_v.weight": v, "W_g.weight": gate}
    found |= {"write.weight": write, "decay.up.weight": decay, "norm.weight": norm.weight.detach()}
    return found | {"W_o.weight": output.weight.detach()}
