"""An attention sink beside the keys: a head whose keys do not answer its question may leave its weight there.

:Taught in: say_nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import check_finite, check_number, check_tensor, checked, described
from mha.functional import core
from mha.functional.core import NO_CHANGES, Changes
from mha.functional.sink_softmax import NOTHING_TAKEN, attend_beside, softmax_beside
from mha.layers.cost import Cost, Part
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions

Logits = float | int | Iterable[float | int] | Tensor


def check_logits(sink: Logits, heads: int) -> list[float]:
    """Return one logit for each head; refuse what is none, and those of another number of heads."""
    given = described(sink)
    if isinstance(sink, Tensor):
        check_tensor(0, 1, sink=sink)
        check_finite(sink=sink)
        sink = sink.tolist()
    if isinstance(sink, str) or not isinstance(sink, Iterable):
        check_number(sink=sink)
        return [float(sink)] * heads
    logits = list(sink)
    check_number(**{f"sink[{h}]": logit for h, logit in enumerate(logits)})
    if len(logits) != heads:
        raise ValueError(f"sink = {given}: there are {heads} heads, give one number, or one for each of them")
    return [float(logit) for logit in logits]


class SinkAttention(Heads):
    """Attend beside an attention sink: every query may attend to it, and there is nothing to read.

    Its logit is one number per head, the same for all tokens. The keys do not get what the sink takes of a row, so
    the weights sum to less than 1. That is a gate: softmax times sigmoid(logsumexp(scores) − sink).

    :Plain when: ``sink`` is very low, as :meth:`from_plain` sets it. With ``sink`` = 0 and ``learned=False`` it is
        softmax off by one, as ``nn.MultiheadAttention(add_zero_attn=True)`` has it.
    :Changes: the normalization: exp(sink) is added to the sum that divides each row.
    :Costs: one parameter per head. On the fused kernel, which runs from ``fused_from`` queries on, copies of queries,
        keys and values with one more channel and one more token.
    :Shapes: as :class:`mha.MultiHeadAttention`; ``sink`` (h,); watched weights have no column for the sink.
    :Raises: ValueError for a ``sink`` that is no number or not one for each head, and as MultiHeadAttention.
    :Source: OpenAI 2025, gpt-oss, released code; Miller 2023 for ``sink`` = 0.
    :Differs from the released code: keys are not shared by several heads, and no layer has a window.
    :Taught in: say_nothing.
    """

    inseparable = None
    of_heads = ("sink", "start")
    fused_from = 64  # queries; for fewer, materializing the weights is cheaper than copying the keys

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        sink: Logits = 0.0,
        learned: bool = True,
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        positions: RelativePositions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param sink: the logit of the sink, one number, or one for each head, (h,); 0 unless given.
        :param learned: whether the logits are learned; they stay as they are otherwise.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout, positions=positions, **like
        )
        self.start, self.learned = check_logits(sink, heads), learned
        of_heads = self.W_q.weight.new_empty(heads)
        if learned:
            self.sink = nn.Parameter(of_heads)
        else:
            self.register_buffer("sink", of_heads)
        self.reset_parameters()

    def _read(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool,
        scale: float | None = None,
        explicit: bool = False,
        changes: Changes = NO_CHANGES,
    ) -> Tensor:
        """Read beside the sink: by the explicit formula for few queries or changes, on the fused kernel for many."""
        dropout = self.dropout if self.training else 0.0
        if explicit or changes or not self._fuses(q.shape[2]):
            changes = replace(changes, normalize=lambda scores: softmax_beside(scores, self.sink))
            return core.attend(q, k, v, mask, is_causal=is_causal, scale=scale, dropout=dropout, changes=changes)
        return attend_beside(q, k, v, self.sink, mask, is_causal=is_causal, scale=scale, dropout=dropout)

    def _fuses(self, i: int) -> bool:
        """Say whether i queries are worth the copies that the fused kernel needs."""
        return torch.compiler.is_exporting() or i >= self.fused_from  # an exported graph has one form for all lengths

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with the logits that the layer was made with."""
        self.sink.copy_(torch.tensor(self.start, dtype=torch.float64, device="cpu"))

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Let the sink be so low that it takes nothing. Such a sink has no slope: to train it, begin with another."""
        return super().plain_settings(layer) | {"sink": NOTHING_TAKEN, "learned": False}

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, with the column, or the copies, that the sink needs."""
        stored = stored or not self._fuses(i) or getattr(self.positions, "bias", None) is not None
        cost = super().cost(b, i, j, fresh=fresh, stored=stored)
        j, h, d, size = i if j is None else j, self.heads, self.d_head, self.W_q.weight.element_size()
        weights = self.learned * h
        if stored:  # the scores are copied, with one column more
            rows = size * b * h * i * (j + 1)
            cost.parts["sink"] = Part(0, 2 * rows)
            peak = cost.peak + rows
        else:
            of_queries, of_keys = b * h * (i + 1) * (d + 1), b * h * (j + 1) * (d + 1)
            more = (i + 1) * of_keys - b * h * i * j * d  # multiplications, in the scores and again in the weighted sum
            copies = of_queries + 2 * of_keys
            cost.parts["sink"] = Part(4 * more, size * 2 * (copies + of_queries))  # the head output is copied too
            peak = cost.peak + size * copies
        return replace(
            cost,
            parameters=cost.parameters + weights,
            weights=cost.weights + weights * size,
            peak=peak,
        )
