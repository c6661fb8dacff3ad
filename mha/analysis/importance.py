"""How much each head matters, guessed from the slope of the loss.

:Taught in: pruning_heads.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_flag, check_tensor, checked
from mha.layers.hooks import edit
from mha.layers.multi_head import Heads, attention_layers


@checked
def head_importance(
    model: nn.Module,
    losses: Callable[[nn.Module, Any], Float[Tensor, "b"]],
    batches: Iterable[Any],
    *,
    normalize: bool = True,
    groups: bool = False,
) -> dict[str, Float[Tensor, "_h"]]:
    """Guess how much each head matters: how fast the loss changes when the head is scaled down a little.

    For each example the slope of its loss at a gate ξ = 1 on the head, without its sign, then the mean over examples.
    Dropout is off meanwhile.

    :param model: any module with attention layers; it stays as it is.
    :param losses: ``losses(model, batch)`` gives one loss for each example, (b,).
    :param batches: whatever ``losses`` takes, at least one.
    :param normalize: whether the numbers of each layer are divided by their L2 norm; they are unless given.
    :param groups: whether there is one gate for each group of heads, which is not the sum of their numbers: what two
        heads do to the loss may cancel.
    :Shapes: returns (h,) for each layer, by its path; with ``groups`` (g,), one for each KV head.
    :Raises: ValueError where the losses are not one for each example, or not finite, or there is no batch.
    :Source: Michel et al. 2019, section 4.1.
    :Differs from the released code: it takes the sign away for each token, and scales the last layer differently.
    :Taught in: pruning_heads.
    """
    check_flag(groups=groups)
    layers, training = attention_layers(model), model.training
    totals: dict[str, Tensor] = {}
    examples = 0
    try:
        model.eval()
        for batch in batches:
            slopes = _slopes(model, layers, losses, batch, groups)
            totals = {path: totals.get(path, 0.0) + slope.abs().sum(0) for path, slope in slopes.items()}
            examples += len(next(iter(slopes.values())))
    finally:
        model.train(training)
    if not examples:
        raise ValueError("there is no batch: importance is a mean over examples")
    means = {path: total / examples for path, total in totals.items()}
    return {path: mean / mean.norm().clamp_min(1e-30) if normalize else mean for path, mean in means.items()}


def _slopes(
    model: nn.Module, layers: Mapping[str, Heads], losses: Callable, batch: Any, groups: bool
) -> dict[str, Tensor]:
    """Find the slope of each example's loss at the gate of each head, or group: (b, h) or (b, g) by layer."""
    gates: dict[str, Tensor] = {}

    def gated(path: str, z: Tensor) -> Tensor:
        size = layers[path].heads // layers[path].kv_heads if groups else 1
        if path not in gates:
            gates[path] = torch.ones_like(z[:, ::size, :1, :1]).requires_grad_()
        return z * gates[path].repeat_interleave(size, 1)

    with ExitStack() as stack, torch.enable_grad():
        for path, layer in layers.items():
            stack.enter_context(edit(layer, heads=partial(gated, path)))
        loss = losses(model, batch)
        sizes = {len(gate) for gate in gates.values()}
        check_tensor(losses=loss)
        if loss.ndim != 1 or {len(loss)} != sizes:
            raise ValueError(f"losses have shape {tuple(loss.shape)}: give one for each of {sorted(sizes)} examples")
        if not bool(loss.isfinite().all()):
            raise ValueError(f"losses = {loss.tolist()}: a loss that is not finite has no slope")
        slopes = torch.autograd.grad(loss.sum(), list(gates.values()), materialize_grads=True)
    return {path: slope[:, :, 0, 0] for path, slope in zip(gates, slopes, strict=True)}
