"""A layer as models of 2025 combine it: shared keys, and around them norms, a gate or a sink, each of which may be left
out.

The layers of the course show one idea each. This one exists so that parameters of such models can be loaded.

:Taught in: say_nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha.checks import check_number, checked
from mha.functional import core
from mha.functional.core import NO_CHANGES, Changes
from mha.functional.sink_softmax import softmax_beside
from mha.layers.cost import Cost, Part, count_linear
from mha.layers.grouped import GroupedAttention
from mha.layers.positions import RelativePositions


class NormedLinear(nn.Linear):
    """A projection with QK-norm: after it every head is brought to length √d, and weighted channel by channel.

    :Shapes: returns (…, h·d); the gain of the norm is ``norm`` (d,), the same for all heads.
    :Taught in: say_nothing.
    """

    @checked
    def __init__(self, linear: nn.Linear, d_head: int, eps: float, offset: float = 0.0) -> None:
        """Take the parameters of a projection, and begin with a norm whose factors are 1.

        :param linear: the projection, d_model → h·d; its parameters are used, no copy.
        :param d_head: the width of a head, d.
        :param eps: what keeps the norm from dividing by 0.
        :param offset: what is added to the gain of the norm: released models begin with ones, or with zeros and an
            offset of 1.
        """
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight = linear.weight
        if linear.bias is not None:
            self.bias = linear.bias
        self.norm = nn.Parameter(torch.full_like(linear.weight[0, :1].expand(d_head), 1.0 - offset))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        """Project, and norm each head.

        :param x: one vector for each token, (…, d_model).
        """
        heads = super().forward(x).unflatten(-1, (-1, len(self.norm)))
        return F.rms_norm(heads, self.norm.shape, self.offset + self.norm, self.eps).flatten(-2)


class ReleasedAttention(GroupedAttention):
    """Attend with shared keys, and with what models of 2025 put around them: norms, a gate, a sink.

    :Plain when: no norms, no gate and no sinks are asked for; then it is a :class:`mha.GroupedAttention`.
    :Changes: with ``norm_eps`` queries and keys pass an RMSNorm, head by head, before positions rotate them; with
        ``gated`` each channel of the head outputs is multiplied by sigmoid(x W_g); with ``sinks`` each row of weights
        sums to less than 1.
    :Costs: as GroupedAttention, and 2·d, d_model · h·d and h parameters for the three. With sinks all weights are
        materialized.
    :Shapes: as GroupedAttention; ``W_q.norm`` and ``W_k.norm`` (d,), ``W_g`` (d_model → h·d), ``sinks`` (h,).
    :Raises: ValueError for an eps that is not positive, an offset below 0 or without norms, and as GroupedAttention.
    :Source: released code of Qwen3 (norms), Qwen3-Next (norms and gate) and gpt-oss (sinks).
    :Taught in: say_nothing.
    """

    of_heads = ("W_g", "sinks")

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int,
        *,
        norm_eps: float | None = None,
        norm_offset: float = 0.0,
        gated: bool = False,
        sinks: bool = False,
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

        :param norm_eps: the eps of the norms of queries and keys, positive; no norms unless given.
        :param norm_offset: what is added to the gains of the norms, at least 0; 0 unless given.
        :param gated: whether each channel of the head outputs has a gate.
        :param sinks: whether each head has a sink.
        """
        super().__init__(
            d_model,
            heads,
            kv_heads,
            d_head=d_head,
            kdim=kdim,
            vdim=vdim,
            bias=bias,
            dropout=dropout,
            positions=positions,
            device=device,
            dtype=dtype,
        )
        self.norm_eps, self.norm_offset, self.gated = norm_eps, norm_offset, gated
        check_number(norm_offset=norm_offset)
        if norm_offset < 0 or (norm_offset and norm_eps is None):
            raise ValueError(
                f"norm_offset = {norm_offset}, norm_eps = {norm_eps}: the offset must not be negative, and without "
                "norms (norm_eps = None) there is nothing that it could be added to: leave it at 0"
            )
        if norm_eps is not None:
            check_number(norm_eps=norm_eps)
            if norm_eps <= 0:
                raise ValueError(f"norm_eps = {norm_eps}: it must be positive, it keeps the norm from dividing by 0")
            self.W_q, self.W_k = (NormedLinear(w, self.d_head, norm_eps, norm_offset) for w in (self.W_q, self.W_k))
        self.W_g = nn.Linear(d_model, heads * self.d_head, bias=False, device=device, dtype=dtype) if gated else None
        self.sinks = nn.Parameter(self.W_o.weight.new_zeros(heads)) if sinks else None

    def _gates(self, query: Tensor, q: Tensor) -> Tensor | None:
        """Make one gate for each channel, where the model has them."""
        return None if self.W_g is None else core.split_heads(self.W_g(query).sigmoid(), self.heads)

    def changes(self) -> Changes:
        """Put the sinks into the normalization, where the model has them."""
        sinks = self.sinks
        return NO_CHANGES if sinks is None else Changes(normalize=lambda scores: softmax_beside(scores, sinks))

    @checked
    @torch.no_grad()
    def take_heads(self, heads: Iterable[int]) -> "ReleasedAttention":
        """Make a smaller layer of some heads; each keeps its gate and its sink, and all the norm that they share."""
        smaller = super().take_heads(heads)
        if self.norm_eps is not None:
            for name in ("W_q", "W_k"):
                normed = NormedLinear(getattr(smaller, name), self.d_head, self.norm_eps, self.norm_offset)
                normed.norm.data = self.get_parameter(f"{name}.norm").detach().clone()
                setattr(smaller, name, normed.train(self.training))
        return smaller

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and the gate; norms count with their parameters only."""
        cost = super().cost(b, i, j, fresh=fresh, stored=stored or self.sinks is not None)
        size, inner = self.W_q.weight.element_size(), self.heads * self.d_head
        parameters = sum(p.numel() for p in self.parameters())
        if self.W_g is not None:
            cost.parts["W_g"] = count_linear(self.W_g, b * i)
            cost.parts["gates"] = Part(0, size * 3 * b * i * inner)
        return replace(cost, parameters=parameters, weights=size * parameters)
