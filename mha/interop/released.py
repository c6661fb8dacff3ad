"""A layer as models of 2025 combine it: shared keys, and around them norms, a gate or a sink, each of which may be left
out.

The layers of the course show one idea each. This one exists so that parameters of such models can be loaded.

:Taught in: say_nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha.checks import check_number, checked, described
from mha.functional import core
from mha.functional.core import NO_CHANGES, Changes
from mha.functional.sink_softmax import softmax_beside
from mha.layers.cost import Cost, Part, count_linear
from mha.layers.gated import GatedAttention
from mha.layers.grouped import GroupedAttention
from mha.layers.hooks import Tap
from mha.layers.multi_head import Heads
from mha.layers.positions import RelativePositions
from mha.layers.projections import with_parts
from mha.layers.sinks import SinkAttention


class NormedLinear(nn.Linear):
    """A projection with QK-norm: after it every head is brought to length √d, and weighted channel by channel.

    :Shapes: returns (…, h·d); the gain of the norm is ``norm`` (d,), the same for all heads, or (h·d,): then all heads
        together are brought to length √(h·d), as OLMo 2 does it.
    :Taught in: say_nothing.
    """

    is_settled = True

    @checked
    def __init__(self, linear: nn.Linear, width: int, eps: float, offset: float = 0.0) -> None:
        """Take the parameters of a projection, and begin with a norm whose factors are 1.

        :param linear: the projection, d_model → h·d; its parameters are used, no copy.
        :param width: of what is brought to one length: of a head, d, or of all together, h·d.
        :param eps: what keeps the norm from dividing by 0.
        :param offset: what is added to the gain of the norm: released models begin with ones, or with zeros and an
            offset of 1.
        """
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight = linear.weight
        if linear.bias is not None:
            self.bias = linear.bias
        self.norm = nn.Parameter(torch.full_like(linear.weight[0, :1].expand(width), 1.0 - offset))
        self.eps, self.offset = eps, offset

    def reset_parameters(self) -> None:
        """Begin anew: the projection as torch does, the norm with factors of 1."""
        super().reset_parameters()
        if hasattr(self, "norm"):  # torch's constructor calls this before there is a norm
            nn.init.constant_(self.norm, 1.0 - self.offset)

    def bare(self) -> nn.Linear:
        """Return the projection without its norm; it shares the parameters."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        linear.weight, linear.bias = self.weight, self.bias
        return linear.train(self.training)

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
        sums to less than 1; with ``softcap`` c a score s becomes c · tanh(s/c), before the mask.
    :Costs: as GroupedAttention, and 2·d, d_model · h·d and h parameters for the three. With sinks or a soft cap all
        weights are materialized.
    :Shapes: as GroupedAttention; ``W_q.norm`` and ``W_k.norm`` (d,), ``W_g`` (d_model → h·d), ``sinks`` (h,).
    :Raises: ValueError for an eps or a soft cap that is not positive, an offset below 0 or without norms, and as
        GroupedAttention; where all heads share their norms, for taking a part of them.
    :Source: released code of Qwen3 (norms), Qwen3-Next (norms and gate), OLMo 2 (norms of all heads together), Gemma 2
        (soft cap) and gpt-oss (sinks).
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
        softcap: float | None = None,
        norm_whole: bool = False,
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
        :param softcap: the size that no score passes, positive; none unless given.
        :param norm_whole: whether the norms take all heads together; such heads cannot be pruned.
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
        self.softcap, self.norm_whole = softcap, norm_whole
        check_number(norm_offset=norm_offset)
        if norm_offset < 0 or (norm_offset and norm_eps is None):
            raise ValueError(
                f"norm_offset = {norm_offset}, norm_eps = {norm_eps}: the offset must not be negative, and without "
                "norms (norm_eps = None) there is nothing that it could be added to: leave it at 0"
            )
        for name, number in (("norm_eps", norm_eps), ("softcap", softcap)):
            if number is not None:
                check_number(**{name: number})
                if number <= 0:
                    raise ValueError(f"{name} = {number}: it must be positive, scores and lengths are divided by it")
        if norm_eps is not None:
            self.W_q, self.W_k = (
                NormedLinear(w, w.out_features if norm_whole else self.d_head, norm_eps, norm_offset)
                for w in (self.W_q, self.W_k)
            )
        self.W_g = nn.Linear(d_model, heads * self.d_head, bias=False, device=device, dtype=dtype) if gated else None
        self.sinks = nn.Parameter(self.W_o.weight.new_zeros(heads)) if sinks else None
        if gated:
            self.at_gates = Tap()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with sinks of 0; the projections have rules of their own."""
        if self.sinks is not None:
            self.sinks.zero_()

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Keep what the layer has around its heads; a GatedAttention and a SinkAttention may be given too."""
        if isinstance(layer, ReleasedAttention):
            names = ("norm_eps", "norm_offset", "norm_whole", "gated", "softcap")
            own = {name: getattr(layer, name) for name in names} | {"sinks": layer.sinks is not None}
            return super().plain_settings(layer) | own
        if type(layer) in (GatedAttention, SinkAttention):
            has = {"gated": type(layer) is GatedAttention, "sinks": type(layer) is SinkAttention}
            return layer._keywords() | has | {"kv_heads": layer.heads, "positions": layer.positions}
        return super().plain_settings(layer)

    def _become(self, layer: Heads) -> None:
        """Take its gate and its sinks too; a gate for each head becomes the same for all its channels."""
        if self.W_g is not None and type(layer) is GatedAttention and layer.gate == "head":
            wide = layer.W_g.weight.repeat_interleave(self.d_head, 0)
            gate = nn.Linear(self.d_model, len(wide), bias=False, device="meta")
            gate.weight = nn.Parameter(wide)
            layer = with_parts(layer, {"W_g": gate})
        norms = {
            name: w for name, w in layer.named_parameters() if name.endswith(".norm") and self.norm_eps is not None
        }
        if torn := [name for name, weight in norms.items() if weight.shape != self.get_parameter(name).shape]:
            raise ValueError(
                f"{', '.join(torn)}: the norms of {type(layer).__name__} take all {layer.kv_heads} KV heads together, "
                "and such a norm cannot be divided or pooled: leave kv_heads and norm_whole as they are"
            )
        super()._become(layer)
        if self.sinks is not None and isinstance(layer, SinkAttention):
            self.sinks.copy_(layer.sink)
            self.sinks.requires_grad_(layer.sink.requires_grad)

    @property
    def is_gated(self) -> bool:
        """Whether the head outputs are multiplied by gates."""
        return self.W_g is not None

    def _gates(self, query: Tensor, q: Tensor) -> Tensor | None:
        """Make one gate for each channel, where the model has them."""
        if self.W_g is None:
            return None
        return self.at_gates(core.split_heads(self.W_g(query).sigmoid(), self.heads))

    def changes(self) -> Changes:
        """Put the sinks into the normalization, where the model has them."""
        sinks, cap = self.sinks, self.softcap
        changes = NO_CHANGES if cap is None else Changes(scores=lambda scores: cap * (scores / cap).tanh())
        return changes if sinks is None else changes.then(Changes(normalize=lambda s: softmax_beside(s, sinks)))

    @checked
    @torch.no_grad()
    def take_heads(self, heads: Iterable[int]) -> "ReleasedAttention":
        """Make a smaller layer of some heads; each keeps its gate and its sink, and all the norm that they share."""
        if self.norm_whole and self.norm_eps is not None:
            raise ValueError(
                f"heads = {described(heads)}: the norms of this layer take all heads together, so each head needs the "
                "others. Silence heads with mha.analysis.mask_heads instead"
            )
        parts = {name: getattr(self, name) for name in ("W_q", "W_k")}
        bare: dict[str, nn.Module] = {n: part.bare() for n, part in parts.items() if isinstance(part, NormedLinear)}
        smaller = super(ReleasedAttention, with_parts(self, bare)).take_heads(heads)
        if self.norm_eps is not None:
            for name in ("W_q", "W_k"):
                normed = NormedLinear(getattr(smaller, name), self.d_head, self.norm_eps, self.norm_offset)
                normed.norm.data = self.get_parameter(f"{name}.norm").detach().clone()
                normed.norm.requires_grad_(self.get_parameter(f"{name}.norm").requires_grad)
                setattr(smaller, name, normed.train(self.training))
        return smaller

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = False) -> Cost:
        """Count one call on paper, as :meth:`Heads.cost` does, and the gate; norms count with their parameters only."""
        cost = super().cost(b, i, j, fresh=fresh, stored=stored or bool(self.changes()))
        size, inner = self.W_q.weight.element_size(), self.heads * self.d_head
        parameters = sum(p.numel() for p in self.parameters())
        if self.W_g is not None:
            cost.parts["W_g"] = count_linear(self.W_g, b * i)
            cost.parts["gates"] = Part(0, size * 3 * b * i * inner)
        return replace(cost, parameters=parameters, weights=size * parameters)
