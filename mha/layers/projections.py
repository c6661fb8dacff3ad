"""What a projection does, whatever is in its place.

An adapter (LoRA) wraps a projection; weight norm, pruning and quantization compute its weight anew at every call. Code
that reads or writes ``W_q.weight`` then misses what the layer computes with. Here the projection itself is asked.

:Taught in: output_projection.
"""

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)

REMEDY = (
    "Put plain linear layers in their places first: merge_and_unload() does it for adapters, remove_parametrizations "
    "for parametrizations, torch.nn.utils.prune.remove for pruning"
)
NAMES = ("W_q", "W_k", "W_v", "W_o")


def is_plain(part: nn.Module) -> bool:
    """Whether a projection is torch's linear map with parameters of its own: no adapter, nothing computed anew.

    :param part: the projection, or what is in its place.
    """
    own = type(part).forward is nn.Linear.forward and "forward" not in vars(part)
    return own and isinstance(part._parameters.get("weight"), Tensor)


@torch.no_grad()
def as_linear(part: nn.Module, name: str) -> nn.Linear:
    """Return the linear map that a projection computes: the projection itself where it is one.

    Anything else is called, in evaluation mode, on zeros and on the identity matrix: this gives its bias and its
    matrix, and one more call shows whether that is all. What is returned then has parameters of its own.

    :param part: the projection, or what is in its place.
    :param name: what an error calls it.
    :Raises: ValueError where it computes something other than a linear map with a bias.
    """
    if isinstance(part, nn.Linear) and (is_plain(part) or _only_writes_it_differently(part)):
        return part
    widths = (getattr(one, "in_features", None) for one in part.modules())
    width, like = next((width for width in widths if isinstance(width, int)), None), first_parameter(part)
    modes = [(one, one.training) for one in part.modules()]
    try:
        if width is None:
            raise ValueError("no part of it has in_features")
        part.eval()
        eye = torch.eye(width) if like is None else torch.eye(width, dtype=like.dtype, device=_device_of(like))
        bias = part(torch.zeros_like(eye[:1]))[0]
        weight = (part(eye) - bias).mT.contiguous()
        probe = torch.arange(3.0 * width, dtype=torch.float64).sin().view(3, width).to(eye)
        found, exact = part(probe), F.linear(probe, weight, bias)
        error = float((found - exact).abs().max() / found.abs().max().clamp_min(torch.finfo(found.dtype).tiny))
        if not error <= 64 * torch.finfo(found.dtype).eps * width**0.5:
            raise ValueError(f"on three tokens it differs from a linear map by {error:.1%}")
    except Exception as error:
        raise ValueError(
            f"{name} is a {type(part).__name__}, which is no linear map with a bias ({error}). {REMEDY}"
        ) from error
    finally:
        for one, training in modes:
            one.training = training
    learns = any(parameter.requires_grad for parameter in part.parameters())
    biased = bool(bias.any()) or any(path.endswith("bias") for path, _ in part.named_parameters())
    new = nn.Linear(width, len(weight), bias=biased, device="meta")  # draws no numbers
    new.weight = nn.Parameter(weight, requires_grad=learns)
    if biased:
        new.bias = nn.Parameter(bias.clone(), requires_grad=learns)
    return new.train(part.training)


def _only_writes_it_differently(part: nn.Linear) -> bool:
    """Whether a class of its own has torch's two parameters, nothing else, and computes the same with them."""
    own = set(part._parameters) == {"weight", "bias"} and not part._modules and isinstance(part.weight, nn.Parameter)
    if not own or not part.weight.is_floating_point() or part.weight.is_meta:
        return False
    probe = torch.arange(3.0 * part.in_features).sin().view(3, -1).to(part.weight)
    found = part(probe)
    return torch.allclose(found, F.linear(probe, part.weight, part.bias), rtol=64 * torch.finfo(found.dtype).eps)


def with_parts(layer: Module, parts: dict[str, nn.Module]) -> Module:
    """Return a layer that shares everything with this one, but some of its parts.

    :param layer: the layer; it stays as it is.
    :param parts: the other parts, by their names.
    """
    new = copy.copy(layer)
    new._modules = {**layer._modules, **parts}
    return new


def settled(layer: Module, *more: str) -> Module:
    """Return a layer whose projections are linear maps with parameters of their own: the layer itself, if they are.

    A projection whose class says ``is_settled`` (one with a norm) has parameters of its own, and is left as it is.

    :param layer: a layer with the four projections.
    :param more: names of further projections.
    :Raises: ValueError where one of them is no linear map.
    """
    parts = {name: getattr(layer, name, None) for name in (*NAMES, *more)}
    own = {name for name, part in parts.items() if getattr(type(part), "is_settled", False)}
    odd = {n: part for n, part in parts.items() if isinstance(part, nn.Module) and n not in own and not is_plain(part)}
    return with_parts(layer, {name: as_linear(part, name) for name, part in odd.items()}) if odd else layer


def check_own_weights(module: nn.Module) -> None:
    """Refuse to write into a module whose matrices are computed anew at every call: what is written would be lost.

    :param module: any module.
    """
    for path, part in module.named_modules():
        lost = isinstance(part, nn.Linear) and not isinstance(part._parameters.get("weight"), Tensor)
        if lost or (getattr(part, "base_layer", None) is not None):
            raise ValueError(
                f"the weight of {path or 'this module'} is computed anew at every call (by pruning, a parametrization "
                f"or an adapter), so what is written into it would be lost. {REMEDY}"
            )


def _device_of(x: Tensor) -> torch.device:
    """The device that inputs must be on: what was offloaded to the meta device is brought back to where they are."""
    return torch.get_default_device() if x.is_meta else x.device


def weight_of(part: nn.Module) -> Tensor | None:
    """Return the weight of a projection; where it has no tensor of that name (an adapter, a quantized module), another
    parameter, or None.

    :param part: a projection, or what is in its place.
    """
    weight = getattr(part, "weight", None)
    return weight if isinstance(weight, Tensor) else first_parameter(part)


def first_parameter(part: nn.Module) -> Tensor | None:
    """Return a parameter with floating-point numbers, which has the type and the device that inputs must have.

    :param part: a projection, or what is in its place.
    """
    return next((one for one in part.parameters() if one.is_floating_point()), None)
