"""What an attention of ``transformers`` is: read from its parts, and believed only after a trial.

A class is not known by its name. Its projections, norms and options make a plan, and the layer of that plan is tried:
on a few tokens, small and large, with a mask and with the model's own angles it must give what their module gives.
Whatever is done there beside (a soft cap, clipped queries, another pairing of channels) shows in the numbers.

:Taught in: in_the_transformer.
"""

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked

TOKENS, SIZES = 7, (1.0, 30.0)  # of the trial: large inputs show clipped queries and soft caps
LIMIT = 1e-3  # the largest difference of the trial, as a share of the largest number


@checked
def shape_of(module: nn.Module) -> str | None:
    """Say which kind of module this is, by its parts: "bert", "llama", "whisper" or "vit"; None for any other.

    :param module: any module.
    """
    inside = getattr(module, "self", None)
    if isinstance(inside, nn.Module):
        parts = all(isinstance(getattr(inside, name, None), nn.Module) for name in ("query", "key", "value"))
        return (
            "bert" if parts and isinstance(getattr(getattr(module, "output", None), "dense", None), nn.Module) else None
        )
    if not all(isinstance(getattr(module, f"{name}_proj", None), nn.Module) for name in "qkv"):
        return None
    if isinstance(getattr(module, "out_proj", None), nn.Module):
        return "whisper" if isinstance(getattr(module, "num_heads", None), int) else None
    if not isinstance(getattr(module, "o_proj", None), nn.Module) or not hasattr(module, "config"):
        return None
    return "llama" if "position_embeddings" in inspect.signature(type(module).forward).parameters else "vit"


@checked
def dropped(module: nn.Module) -> list[str]:
    """List what a module drops in training after its attention, which a layer of ours would not drop.

    :param module: an attention of a model of ``transformers``.
    """
    names = ("resid_dropout", "residual_dropout", "hidden_dropout", "resid_attn_dropout", "proj_drop")
    found = {name: getattr(module, name) for name in names if hasattr(module, name)}
    rates = {name: part.p if isinstance(part, nn.Dropout) else part for name, part in found.items()}
    return [f"{name} = {rate}: it drops a part of the output in training" for name, rate in rates.items() if rate]


@checked
def differs(module: nn.Module, ours: Callable[[Tensor, Tensor, Any], Tensor]) -> str:
    """Try a layer against the module that it shall replace; return how they differ, or an empty text.

    :param module: an attention of a model of ``transformers``; it stays as it is.
    :param ours: a function of the tokens (b, n, d_model), a mask (b, 1, n, n), True = may look, and the model's angles.
    """
    theirs = copy.deepcopy(module).float().eval()
    config = getattr(getattr(theirs, "self", theirs), "config", None)
    if config is None:
        return "it has no configuration"
    config._attn_implementation = "eager"
    width = first_width(theirs)
    mask = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
    mask[1, :, 3:, 1] = False
    for size in SIZES:
        x = size * torch.arange(2.0 * TOKENS * width).mul(0.7).sin().view(2, TOKENS, width)
        angles = angles_of(theirs, x)
        try:
            with torch.no_grad():
                right = called(theirs, x, mask, angles)
                found = ours(x, mask, angles)
        except Exception as error:
            return f"a trial call ended with {type(error).__name__}: {str(error)[:200]}"
        error = float((found - right).abs().max() / right.abs().max().clamp_min(1e-12))
        if not error <= LIMIT:
            return f"on {TOKENS} tokens of size {size:g} a layer with its parameters differs by {error:.1%}"
    return ""


def first_width(module: nn.Module) -> int:
    """Return the width of the module's tokens."""
    inside: Any = getattr(module, "self", module)
    query = getattr(inside, "query", None) or inside.q_proj
    return next(one.in_features for one in query.modules() if isinstance(getattr(one, "in_features", None), int))


def angles_of(module: Any, x: Tensor) -> Any:
    """Make the angles that the model would pass, by its own class; None where its attention takes none."""
    if "position_embeddings" not in inspect.signature(type(module).forward).parameters:
        return None
    kinds = [
        one for name, one in vars(sys.modules[type(module).__module__]).items() if name.endswith("RotaryEmbedding")
    ]
    return kinds[0](config=module.config)(x, torch.arange(x.shape[1])[None]) if len(kinds) == 1 else None


def called(module: nn.Module, x: Tensor, mask: Tensor, angles: Any) -> Tensor:
    """Call a module with what its signature asks for."""
    names = inspect.signature(type(module).forward).parameters
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    given = {"hidden_states": x, "attention_mask": added, "position_embeddings": angles}
    answer = module(**{name: value for name, value in given.items() if name in names})
    return answer[0] if isinstance(answer, tuple) else answer
