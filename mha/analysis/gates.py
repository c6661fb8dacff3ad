"""Gates that learn which heads are needed: each is 0, 1 or between, and an open gate costs something.

:Taught in: pruning_heads.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import check_flag, check_whole, checked
from mha.layers.hooks import edit
from mha.layers.multi_head import Heads, attention_layers

SMALLEST = 1e-6  # the noise stays this far from 0 and 1, where its logarithm would be infinite


class HardConcrete(nn.Module):
    """A random gate for each head that is exactly 0 or 1 most of the time, and yet has a gradient.

    In training s = sigmoid((log u − log(1 − u) + log a) / β) with u uniform in (0, 1), stretched from (0, 1) to
    (low, high) and cut to [0, 1]; one draw per call. In evaluation s = sigmoid(log a), with no noise and no β.

    :Plain when: ``log_a`` is large: every gate is 1.
    :Costs: one parameter per head.
    :Shapes: gates (h,).
    :Raises: ValueError where the stretched interval does not reach beyond 0 and 1, or β is not positive.
    :Source: Louizos et al. 2018, section 2.2; Voita et al. 2019, section 6.1, for heads.
    :Differs from the paper: Voita et al. set gates to 0 or 1 in evaluation, which is :meth:`decided`. The mixed penalty
        of Louizos et al. (L0 with L2) is left out.
    :Differs from the released code: the noise comes from torch's own random numbers, no generator can be given; nor
        is there a switch for the mixed penalty.
    :Taught in: pruning_heads.
    """

    @checked
    def __init__(self, heads: int, *, log_a: float = 2.0, beta: float = 0.33, low: float = -0.1, high: float = 1.1):
        """Make the gates.

        :param heads: how many gates there are, h.
        :param log_a: where every log a begins; 2 unless given, which is almost always open.
        :param beta: the temperature β, positive; 0.33 unless given.
        :param low: the lower end of the stretched interval, below 0; −0.1 unless given.
        :param high: its upper end, above 1; 1.1 unless given.
        """
        super().__init__()
        check_whole(heads=heads)
        if not (low < 0 and high > 1 and beta > 0):
            raise ValueError(f"low = {low}, high = {high}, beta = {beta}: they must be below 0, above 1, above 0")
        self.log_a = nn.Parameter(torch.full((heads,), float(log_a)))
        self.beta, self.low, self.high = beta, low, high

    def forward(self) -> Float[Tensor, "h"]:
        """Draw gates in training, give their usual values in evaluation."""
        odds: Tensor = self.log_a
        if self.training:
            u = torch.empty_like(odds).uniform_(SMALLEST, 1 - SMALLEST)
            odds = (u.log() - (-u).log1p() + odds) / self.beta
        return (odds.sigmoid() * (self.high - self.low) + self.low).clamp(0, 1)

    def open_probability(self) -> Float[Tensor, "h"]:
        """Say how likely each gate is not 0: sigmoid(log a − β · log(−low / high))."""
        return (self.log_a - self.beta * math.log(-self.low / self.high)).sigmoid()

    def full_probability(self) -> Float[Tensor, "h"]:
        """Say how likely each gate is 1: sigmoid(log a − β · log((1 − low) / (high − 1)))."""
        return (self.log_a - self.beta * math.log((1 - self.low) / (self.high - 1))).sigmoid()

    def penalty(self) -> Float[Tensor, ""]:
        """Count the gates that are expected to be open."""
        return self.open_probability().sum()

    def decided(self) -> Float[Tensor, "h"]:
        """Give each gate 0 or 1, whichever is more likely of the two."""
        return (self.full_probability() > 1 - self.open_probability()).to(self.log_a)


class Gates(nn.Module):
    """Gates on the heads of all attention layers of a model.

    Train them together with the model: ``with gates.on(model): loss = … + strength * gates.penalty()``. They multiply
    the output of a head, before ``W_o``.

    :Costs: one parameter for each head of the model, or for each group.
    :Raises: ValueError where the model has no layer with heads.
    :Source: Voita et al. 2019, section 6.
    :Differs from the released code: the penalty is the sum over layers, as in the paper; the code takes their mean.
    :Taught in: pruning_heads.
    """

    @checked
    def __init__(
        self,
        model: nn.Module,
        *,
        log_a: float = 2.0,
        beta: float = 0.33,
        low: float = -0.1,
        high: float = 1.1,
        groups: bool = False,
    ) -> None:
        """Make gates for each layer of the model.

        :param model: any module with attention layers; it stays as it is.
        :param log_a: where every log a begins; 2 unless given, which is almost always open.
        :param beta: the temperature β, positive; 0.33 unless given.
        :param low: the lower end of the stretched interval, below 0; −0.1 unless given.
        :param high: its upper end, above 1; 1.1 unless given.
        :param groups: whether there is one gate for each KV head and the query heads that share it, instead of one for
            each query head; then :meth:`penalty` and :meth:`keep` count groups.
        """
        super().__init__()
        check_flag(groups=groups)
        layers = attention_layers(model)
        self.paths, self.groups = list(layers), groups
        numbers = [layer.kv_heads if groups else layer.heads for layer in layers.values()]
        each = (HardConcrete(number, log_a=log_a, beta=beta, low=low, high=high) for number in numbers)
        self.each = cast(Sequence[HardConcrete], nn.ModuleList(each))
        self.to(next(model.parameters()))

    @checked
    @contextmanager
    def on(self, model: nn.Module, *, decided: bool = False) -> Iterator[None]:
        """Put the gates on a model for a while.

        :param model: the model that the gates were made for, or a copy.
        :param decided: whether gates are only 0 and 1; they are drawn unless given.
        """
        with ExitStack() as stack:
            for path, gate in zip(self.paths, self.each, strict=True):
                draw = gate.decided if decided else gate
                layer = cast(Heads, model.get_submodule(path))
                size = layer.heads // layer.kv_heads if self.groups else 1
                stack.enter_context(edit(layer, heads=_closing(draw, size)))
            yield

    def penalty(self) -> Float[Tensor, ""]:
        """Count the heads of the model that are expected to stay."""
        return torch.stack([gate.penalty() for gate in self.each]).sum()

    @checked
    def keep(self, *, at_least: int = 0) -> dict[str, list[int]]:
        """List the heads that stay, by layer, for :func:`mha.analysis.prune_heads`, which wants 1 in each.

        Gates on groups list groups, which ``prune_heads(model, keep, groups=True)`` takes.

        Where fewer gates of a layer are decided to be 1, those that are most likely open stay.

        :param at_least: how many heads of each layer stay in any case; 0 unless given.
        """
        check_whole(0, at_least=at_least)
        kept = {}
        for path, gate in zip(self.paths, self.each, strict=True):
            count = max(at_least, int(gate.decided().sum()))
            kept[path] = sorted(gate.log_a.argsort(descending=True, stable=True)[:count].tolist())
        return kept


def _closing(draw: Callable[[], Tensor], size: int) -> Callable[[Tensor], Tensor]:
    return lambda z: z * draw().repeat_interleave(size)[:, None, None]
