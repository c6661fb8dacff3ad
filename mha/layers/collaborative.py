"""Heads that compare in one shared space: each of them only weights its channels in its own way.

:Taught in: collaborate.
"""

import copy
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.attention import check_qkv
from mha.functional.core import NO_CHANGES, Changes
from mha.functional.decomposition import fit_shared
from mha.layers.cache import LayerCache
from mha.layers.cost import Cost, Part, count_attention
from mha.layers.hooks import Tap
from mha.layers.multi_head import Heads
from mha.layers.projections import settled
from mha.layers.surgery import cut_linear, head_numbers, rows_of

FUSIONS = ("concatenate", "share")


class CollaborativeAttention(Heads):
    """Attend with collaborative heads (CollabHead), which share one set of queries and keys.

    A mixing vector says how a head weights the channels.

    What the bias of a query does to the scores depends on the key only: it becomes the content bias of each head, which
    the last rows of ``W_k`` make. A bias of keys would change nothing, so there is none.

    :Plain when: ``fusion`` is "concatenate" and ``d_shared`` is heads · d: each head weights d channels by 1, the
        others by 0. With "share" all heads weight all channels, and a smaller ``d_shared`` compresses them.
    :Changes: ``W_q`` and ``W_k``, of width ``d_shared``, and ``mixing`` (heads, d_shared), which multiplies queries.
    :Costs: 2 · d_model · d_shared + heads · (d_shared + d_model) + 2 · d_model² parameters; scores take
        2·n²·heads·d_shared FLOPs, ``heads`` times those of plain heads where nothing is compressed.
    :Shapes: as :class:`mha.MultiHeadAttention`; a cache holds d_shared + heads numbers of a key for all heads together.
    :Raises: ValueError for fewer than 1 shared channel, an unknown fusion, blocks of unequal size.
    :Source: Cordonnier et al. 2020, section 3.
    :Differs from the paper: "share" begins with variance d / d_shared, so that scores begin as large as plain ones.
    :Differs from the released code: scores are divided by √d of the plain heads, whatever ``d_shared``; the package for
        language models divides by √(d_shared / heads), so that compressing a layer changes its temperature.
    :Taught in: collaborate.
    """

    inseparable = "all heads share one set of queries and keys"  # some can be taken out, by a way of its own

    @checked
    def __init__(
        self,
        d_model: int,
        heads: int,
        d_shared: int | None = None,
        *,
        fusion: str = "share",
        d_head: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the layer; the other keywords are those of :class:`mha.Heads`.

        :param d_shared: the width of the queries and keys that all heads share; heads · d unless given.
        :param fusion: "share" or "concatenate": all heads weight all channels, or each begins with channels of its own.
        """
        like: Any = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, heads, d_head=d_head, kdim=kdim, vdim=vdim, bias=bias, dropout=dropout,
            replaced=("W_q", "W_k"), **like,
        )  # fmt: skip
        self.d_shared, self.fusion = heads * self.d_head if d_shared is None else d_shared, fusion
        if self.d_shared < 1 or fusion not in FUSIONS:
            raise ValueError(f"d_shared = {self.d_shared}, fusion = {fusion!r}: at least 1, and one of {FUSIONS}")
        if fusion == "concatenate" and self.d_shared % heads:
            raise ValueError(f"{heads} heads cannot own equal blocks of {self.d_shared} channels: take a multiple")
        biases = 0 if self.W_q.bias is None else heads
        self.W_q = nn.Linear(d_model, self.d_shared, bias=False, **like)
        self.W_k = nn.Linear(self.W_k.in_features, self.d_shared + biases, bias=False, **like)
        self.mixing = nn.Parameter(self.W_q.weight.new_empty(heads, self.d_shared))
        self.reset_parameters()

    def _project(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> tuple[Tensor, ...]:
        """Make mixed queries (b, h, i, d_shared), one key (b, 1, j, d_shared + biases), values (b, h, j, d)."""
        q, k, v = super()._project(query, key, value, cache)
        return q * self.mixing[:, None].to(q), k, v

    def _into_heads(self, x: Tensor, heads: int, start: int | None) -> Tensor:
        return x[:, None]  # one for all heads

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
        """Compare the queries of each head with the one key. Keys and values differ in width: no fused kernel runs."""
        k, content = k.split([self.d_shared, k.shape[-1] - self.d_shared], -1)
        scale = 1 / math.sqrt(self.d_head) if scale is None else scale
        if content.shape[-1]:
            by_content = scale * content.permute(0, 3, 1, 2)
            changes = Changes(scores=lambda scores: scores + by_content).then(changes)
        k = k.expand(-1, self.heads, -1, -1)
        return super()._read(q, k, v, mask, is_causal=is_causal, scale=scale, explicit=True, changes=changes)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Begin with mixing vectors of 0 and 1 ("concatenate") or of random numbers ("share")."""
        if self.fusion == "share":
            self.mixing.normal_(0, math.sqrt(self.d_head / self.d_shared))
        else:
            self.mixing.copy_(torch.eye(self.heads).repeat_interleave(self.d_shared // self.heads, 1))

    @classmethod
    def plain_settings(cls, layer: Heads) -> dict[str, Any]:
        """Give each head channels of its own among the shared ones."""
        return layer.settings(biases="qvo", positions=False) | {"fusion": "concatenate"}

    def _become(self, layer: Heads) -> None:
        """Take the parameters of a plain layer; what its bias of queries does becomes the content bias."""
        for name, weight in layer.named_parameters():
            if name not in ("W_q.bias", "W_k.bias"):
                self.get_parameter(name)[: len(weight)].copy_(weight)
        if layer.W_q.bias is not None:
            rows = layer.W_q.bias[:, None] * layer.W_k.weight
            self.W_k.weight[self.d_shared :].copy_(rows.unflatten(0, (layer.heads, -1)).sum(1))

    def _check_qkv(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        check_qkv(q, k[..., : self.d_shared].expand(-1, self.heads, -1, -1), v)

    @checked
    @torch.no_grad()
    def take_heads(self, heads: Iterable[int]) -> "CollaborativeAttention":
        """Make a layer of some heads: values, outputs and mixing are cut, the shared channels stay whole."""
        chosen, whole = head_numbers(self.heads, heads), settled(self)
        new, biases = copy.deepcopy(whole), whole.W_k.out_features - self.d_shared
        new.heads = new.kv_heads = len(chosen)
        new.at_scores, new.at_weights, new.at_heads = Tap(), Tap(), Tap()  # who watches this layer does not watch it
        rows = [*range(self.d_shared), *(self.d_shared + h for h in chosen if biases)]
        new.mixing = nn.Parameter(self.mixing[chosen], requires_grad=self.mixing.requires_grad)
        new.W_k = cut_linear(whole.W_k, torch.tensor(rows), 0)
        new.W_v = cut_linear(whole.W_v, rows_of(chosen, self.d_head), 0)
        new.W_o = cut_linear(whole.W_o, rows_of(chosen, self.d_head), 1)
        return new

    @checked
    def cost(self, b: int, i: int, j: int | None = None, *, fresh: int | None = None, stored: bool = True) -> Cost:
        """Count one call; the explicit formula runs in any case, so that weights are always ``stored``."""
        plain, j = count_attention(self, b, i, j, fresh, heads=self.heads, kv_heads=self.heads, stored=True), j or i
        size, scores, mixed = self.mixing.element_size(), b * self.heads * i * j, b * self.heads * i * self.d_shared
        keys, values, read = (
            b * n * linear.out_features for n, linear in ((j, self.W_k), (j, self.W_v), (i, self.W_v))
        )
        parts = dict(plain.parts)
        parts["mixing"] = Part(0, size * (mixed + mixed // self.heads + self.mixing.numel()))
        parts["scores"] = Part(2 * scores * self.d_shared, size * (mixed + keys + 2 * scores))
        copies = (b * j * self.heads * self.d_shared, values) if b > 1 else (0, 0)  # one batch item needs no copies
        then = max(mixed + copies[0], scores + b * j * (self.W_k.out_features - self.d_shared), read + copies[1])
        kept = mixed + (keys + values if fresh in (None, j) else 0)
        parameters = plain.parameters + self.mixing.numel()
        weights, peak = size * parameters, size * (kept + scores + then)
        return replace(plain, parts=parts, parameters=parameters, weights=weights, peak=peak)


@checked
@torch.no_grad()
def collaborate(layer: Heads, d_shared: int, *, rounds: int = 200) -> CollaborativeAttention:
    """Give a trained layer ``d_shared`` shared channels instead of heads · d, so that its scores change little.

    The products W_qᵀ W_k of all heads are fitted by :func:`fit_shared`; values, outputs, biases and the temperature
    stay. With heads · d channels nothing changes.

    :param layer: a plain layer.
    :param d_shared: how many channels its heads share afterwards, 1 to heads · d.
    :param rounds: how many rounds the fit may take; 200 unless given.
    :Raises: ValueError where ``d_shared`` is below 1 or above heads · d, and where the layer is not a plain one.
    :Source: Cordonnier et al. 2020, section 4.
    :Differs from the released code: it starts from singular vectors, not from random ones, and ``scale`` stays.
    :Taught in: collaborate.
    """
    new = CollaborativeAttention.from_plain(layer)
    if not 1 <= d_shared <= new.d_shared:
        raise ValueError(f"d_shared = {d_shared}: 1 to {new.d_shared}, where nothing changes any more")
    if d_shared == new.d_shared:
        return new
    terms = fit_shared(products(layer).double().cpu(), d_shared, rounds=rounds)
    content = new.W_k.weight[new.d_shared :]
    new.d_shared, new.fusion = d_shared, "share"
    new.W_q = _linear(terms.left.T.to(content))
    new.W_k = _linear(torch.cat([terms.right.T.to(content), content]))
    new.mixing = nn.Parameter(terms.mixing.to(content))
    return new


@checked
def products(layer: Heads) -> Float[Tensor, "h m k"]:
    """Multiply the projections of each head: what it compares, W_qᵀ W_k.

    :param layer: a layer of which each head has queries and keys of its own.
    :Taught in: collaborate.
    """
    layer = settled(layer)
    q, k = (linear.weight.unflatten(0, (layer.heads, -1)) for linear in (layer.W_q, layer.W_k))
    return q.mT @ k


def _linear(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")  # draws no numbers
    linear.weight = nn.Parameter(weight)
    return linear
