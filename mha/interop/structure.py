"""Try a plan for an attention of ``transformers``: it is believed only where the numbers agree.

A class is not known by its name. Its parts make plans, and the layer of each is tried: on a few tokens, small and
large, at the first positions and far away, with a mask and the model's own angles it must give what their module gives.
Both have parameters drawn for the trial, because with those of an untrained model many plans agree. Whatever is done
there beside (clipped queries, a temperature, another norm) shows in the numbers, and parameters that no plan reads show
in their list.

:Taught in: in_the_transformer.
"""

import contextlib
import copy
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.interop.endings import DROPPED, ending_of
from mha.interop.parts import DROPOUT, arguments, inside_of, projections_of, width_of
from mha.interop.plan import Plan, build
from mha.interop.rotary import kind_of_layer, rotary_classes, turned_by
from mha.layers.multi_head import Heads

TOKENS = 7
LIMIT = 2e-5  # the largest difference of a trial, as a share of the largest number
# How large the tokens are, where the first one stands, and the limit: large scores lose digits in float32.
TRIALS = ((1.0, 0, LIMIT), (30.0, 0, 1e-3), (1.0, 100_000, LIMIT))


@checked
def unread(module: nn.Module, plan: Plan) -> list[str]:
    """List the parameters and buffers of a module that neither the plan nor what comes after attention reads.

    :param module: an attention of a model of ``transformers``.
    :param plan: that was made of it.
    """
    parts = [*projections_of(module).values(), ending_of(module)]
    read = {id(one) for part in parts for one in (*part.parameters(), *part.buffers())}
    table = getattr(module, "relative_attention_bias", None)  # T5's, which stays theirs
    read |= {id(one) for one in table.parameters()} if isinstance(table, nn.Module) else set()
    places = {weight.untyped_storage().data_ptr() for weight in plan.weights.values()}
    named = (*module.named_parameters(), *module.named_buffers())
    return [
        name
        for name, one in named
        if id(one) not in read and one.untyped_storage().data_ptr() not in places and not name.endswith("inv_freq")
    ]


@checked
def drawn(module: nn.Module) -> nn.Module:
    """Return a copy of a module with other parameters, on the processor and in float32: matrices that keep lengths,
    gains and biases around 1.

    :param module: an attention of a model of ``transformers``; it stays as it is.
    """
    other, generator = copy.deepcopy(module).to("cpu", torch.float32), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in other.parameters():
            if one.is_floating_point() and one.ndim > 1:
                one.normal_(0, one.shape[-1] ** -0.5, generator=generator)
            elif one.is_floating_point():
                one.uniform_(0.5, 1.5, generator=generator)
    return other


@checked
def differs(module: nn.Module, plan: Plan) -> str:
    """Try the layer of a plan against the module that it is to replace; return how they differ, or an empty text.

    :param module: an attention of a model of ``transformers`` with parameters of the trial, as from :func:`drawn`.
    :param plan: that was made of it.
    """
    if names := unread(module, plan):
        return f"it has {', '.join(names[:3])}, which a layer here has no place for"
    theirs = module.eval()
    inside = inside_of(theirs)
    if hasattr(inside, "config"):
        inside.config._attn_implementation = "eager"
    try:
        layer, ending = build(plan).eval(), ending_of(theirs).eval()
    except ValueError as error:
        return str(error)
    width = plan.sizes["d_model"]
    mask = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
    mask[1, :, 3:, 1] = False
    for size, start, limit in TRIALS:
        x = size * torch.arange(2 * TOKENS * width).to(torch.float32).mul(0.7).sin().view(2, TOKENS, width)
        given = inputs_for(theirs, x, mask, start, plan.sizes["heads"])
        if reason := _compared(theirs, layer, ending, given, mask, limit):
            return f"on {TOKENS} tokens of size {size:g} from position {start:,} on {reason}"
    of_weights = {name for name in DROPOUT if getattr(inside, name, None) is not None}
    for name, rates in (("weights", (1.0, 0.0)), ("output", (0.0, 1.0))):  # what is dropped whole shows where it is
        one, end = copy.deepcopy(theirs).train(), copy.deepcopy(ending).train()
        _set_rates(one, of_weights, *rates)
        layer.train().dropout = rates[0] * bool(plan.sizes["dropout"])
        _set_rates(end, set(), *rates)
        if reason := _compared(one, layer, end, given, mask):
            return f"with dropout of the {name} in training {reason}"
    return ""


def _compared(
    theirs: nn.Module, layer: Heads, ending: nn.Module, given: dict[str, Any], mask: Tensor, limit: float = LIMIT
) -> str:
    """Call both; return how they differ, or an empty text."""
    x = given["hidden_states"]
    try:
        angles = pairwise(given.get("position_embeddings"), repeats_angles(theirs))
        with torch.no_grad(), turned_by(layer, angles, given.get("position_bias")):
            answer, mine = theirs(**given), ending(layer(x, mask=mask), x)
    except Exception as error:
        return f"a trial call ended with {type(error).__name__}: {str(error)[:200]}"
    right = answer[0] if isinstance(answer, tuple) else answer
    off = float((mine - right).abs().max() / right.abs().max().clamp_min(1e-12))
    return "" if off <= limit else f"a layer with its parameters differs by {off:.1%}"


def _set_rates(module: nn.Module, of_weights: set[str], weights: float, output: float) -> None:
    """Let a module drop everything or nothing, wherever it drops something in training."""
    for one in module.modules():
        for name, rate in [*vars(one).items(), *one._modules.items()]:
            new = weights if name in of_weights and one is inside_of(module) else output
            if isinstance(rate, nn.Dropout):
                rate.p = new * bool(rate.p)
            elif isinstance(rate, float) and name in (*DROPOUT, *DROPPED):
                setattr(one, name, new * bool(rate))


@checked
def inputs_for(theirs: nn.Module, x: Tensor, mask: Tensor, start: int, heads: int) -> dict[str, Any]:
    """Make what a module's signature asks for.

    :param theirs: an attention of a model of ``transformers``.
    :param x: the tokens, (b, n, d_model).
    :param mask: (b, 1, n, n), True = may look.
    :param start: the position of the first token.
    :param heads: how many there are.
    """
    names, n = arguments(theirs), x.shape[1]
    added = torch.zeros(mask.shape, dtype=torch.float32).masked_fill(~mask, torch.finfo(torch.float32).min)
    positions = torch.arange(start, start + n)
    given: dict[str, Any] = {"hidden_states": x, "attention_mask": added, "mask": added, "alibi": None}
    given |= {"cache_position": positions, "position_ids": positions.expand(2, n)}
    given["position_bias"] = torch.arange(heads * n * n).to(torch.float32).mul(1.3).cos().view(1, heads, n, n)
    given["position_embeddings"] = angles_of(theirs, x, positions)
    return {name: value for name, value in given.items() if name in names}


@checked
def answers_of(module: nn.Module) -> int:
    """Count what a module returns in a tuple, the output and the weights first; 0 where it returns the output alone.

    :param module: an attention of a model of ``transformers``; it stays as it is.
    """
    theirs, parts = copy.deepcopy(module).to("cpu", torch.float32).eval(), projections_of(module)
    x = torch.zeros(2, 2, width_of(parts.get("q", parts.get("qkv"))) or 1, dtype=torch.float32)
    with torch.no_grad():
        answer = theirs(**inputs_for(theirs, x, torch.ones(2, 1, 2, 2, dtype=torch.bool), 0, 1))
    return len(answer) if isinstance(answer, tuple) else 0


@checked
def repeats_angles(theirs: nn.Module) -> bool:
    """Whether a model lists the angle of each pair of channels twice in a row, as Cohere's do.

    :param theirs: an attention of a model of ``transformers``.
    """
    angles = angles_of(theirs, torch.zeros(1, 2, 1), torch.arange(2))
    return (
        isinstance(angles, tuple)
        and angles[0].shape[-1] > 1
        and bool((angles[0][0, 1, 0::2] == angles[0][0, 1, 1::2]).all())
    )


@checked
def pairwise(angles: Any, repeated: bool) -> Any:
    """List the angle of each pair of channels once, the pairs in their order.

    :param angles: what a model passes: a pair (cos, sin), complex numbers, or None.
    :param repeated: see :func:`repeats_angles`.
    """
    return tuple(wave[..., 0::2] for wave in angles) if repeated else angles


@checked
def angles_of(theirs: nn.Module, x: Tensor, positions: Tensor) -> Any:
    """Make the angles that the model would pass, by its own class; None where its code has none.

    :param theirs: an attention of a model of ``transformers``.
    :param x: the tokens, (b, n, d_model).
    :param positions: of the tokens, (n,).
    """
    inside = inside_of(theirs)
    if "position_embeddings" not in arguments(theirs) or not hasattr(inside, "config"):
        return None
    kind = kind_of_layer(inside)
    for rotary in rotary_classes(inside):
        with contextlib.suppress(Exception):  # that of another tower wants other positions
            return rotary(x, positions[None], *([] if kind is None else [kind]))
    return None
