"""The layers of the Transformer: where attention is called, and with what.

``attention`` is a number of heads, which makes a :class:`mha.MultiHeadAttention`, or a function that makes any other
layer of this package: ``EncoderLayer(64, lambda: MultiHeadAttention(64, 4, positions=RotaryPositions()))``.

:Taught in: in_the_transformer, positions, depth_and_norms.
"""

from collections.abc import Callable
from typing import cast

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_tensor, checked
from mha.layers.cache import DecoderCache, LayerCache, MemoryCache
from mha.layers.multi_head import Heads
from mha.models.blocks import FeedForward, Make, Residual, given, made, make_attention
from mha.models.inputs import check_cacheable, check_crossing, check_kind_of_cache, check_named


class EncoderLayer(nn.Module):
    """Let every token attend to the tokens around it, then feed forward, token by token.

    :Shapes: returns (b, n, d_model).
    :Source: Vaswani et al. 2017, section 3.1.
    :Differs from the paper: the norm comes first unless ``norm_first=False``; the activation is GELU.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        attention: int | Make,
        *,
        feed_forward: Make | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the layer.

        :param d_model: the width of input and output.
        :param attention: a number of heads, or a function that makes the layer.
        :param feed_forward: a function that makes the feed-forward part; one 4 · d_model wide unless given.
        :param norm: a function that makes a norm from the width; LayerNorm unless given.
        :param norm_first: whether the norm comes before each part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share dropped in training, of attention weights and of what each part adds; 0 unless given.
        """
        super().__init__()
        self.attention = make_attention(d_model, attention, dropout)
        self.feed_forward = (
            made("feed_forward", feed_forward) if feed_forward else FeedForward(d_model, 4 * d_model, dropout=dropout)
        )
        self.around_attention = Residual(d_model, norm, norm_first, dropout)
        self.around_feed_forward = Residual(d_model, norm, norm_first, dropout)

    def forward(
        self,
        x: Float[Tensor, "b n m"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b n m"]:
        """Attend once, then feed forward.

        :param x: one vector for each token, (b, n, d_model).
        :param mask: (n, n) or (b, h, n, n), True = may look; everything may be looked at unless given.
        :param is_causal: whether each token sees only itself and what came before; then it is the layer of a language
            model.
        :param cache: keys and values of earlier calls, by :meth:`new_cache`; no cache unless given.
        """
        x = self.around_attention(x, lambda x: self.attention(x, mask=mask, is_causal=is_causal, **given(cache)))
        return self.around_feed_forward(x, self.feed_forward)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> LayerCache:
        """Make an empty cache for this layer.

        :param capacity: in positions; 1024 unless given.
        :param padding: how many positions in front of each sequence are padding, (b,); none unless given.
        """
        check_cacheable(self.attention)
        return cast(Heads, self.attention).new_cache(capacity, padding)


class DecoderLayer(nn.Module):
    """Let every token attend to the tokens before it, then to the memory, then feed forward.

    :Shapes: returns (b, n, d_model).
    :Raises: ValueError where the cross-attention has positions: two sequences have no common positions.
    :Source: Vaswani et al. 2017, section 3.1.
    :Differs from the paper: as :class:`EncoderLayer`.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        attention: int | Make,
        *,
        cross_attention: int | Make | None = None,
        feed_forward: Make | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the layer.

        :param d_model: the width of input and output.
        :param attention: a number of heads, or a function that makes the layer.
        :param cross_attention: a number of heads, or a function that makes the layer; as ``attention`` unless given.
        :param feed_forward: a function that makes the feed-forward part; one 4 · d_model wide unless given.
        :param norm: a function that makes a norm from the width; LayerNorm unless given.
        :param norm_first: whether the norm comes before each part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share dropped in training, of attention weights and of what each part adds; 0 unless given.
        """
        super().__init__()
        self.self_attention = make_attention(d_model, attention, dropout)
        self.cross_attention = make_attention(
            d_model, attention if cross_attention is None else cross_attention, dropout, "cross_attention"
        )
        check_crossing(self.cross_attention)
        self.feed_forward = (
            made("feed_forward", feed_forward) if feed_forward else FeedForward(d_model, 4 * d_model, dropout=dropout)
        )
        self.around_self = Residual(d_model, norm, norm_first, dropout)
        self.around_cross = Residual(d_model, norm, norm_first, dropout)
        self.around_feed_forward = Residual(d_model, norm, norm_first, dropout)

    def forward(
        self,
        x: Float[Tensor, "b n m"],
        memory: Float[Tensor, "b j m"],
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        *,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "b n m"]:
        """Attend to the tokens so far (always causal), attend to the memory, feed forward.

        :param x: one vector for each token, (b, n, d_model).
        :param memory: what the encoder made of the source, (b, j, d_model).
        :param mask: (n, n) or (b, h, n, n), True = may look, beside the causal mask; no more is hidden unless given.
        :param memory_mask: (n, j) or (b, h, n, j), True = may look; everything may be looked at unless given.
        :param cache: what earlier calls kept, by :meth:`new_cache`; no cache unless given.
        """
        check_tensor(3, memory=memory)
        check_named("memory_mask", memory_mask)
        check_kind_of_cache(cache, DecoderCache)
        own, other = (None, None) if cache is None else (cache.own, cache.memory)
        x = self.around_self(x, lambda x: self.self_attention(x, mask=mask, is_causal=True, **given(own)))
        x = self.around_cross(x, lambda x: self.cross_attention(x, memory, mask=memory_mask, **given(other)))
        return self.around_feed_forward(x, self.feed_forward)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> DecoderCache:
        """Make an empty cache for this layer: one for the tokens so far, one for the memory.

        :param capacity: in positions; 1024 unless given.
        :param padding: how many positions in front of each sequence are padding, (b,); none unless given.
        """
        check_cacheable(self.self_attention, self.cross_attention)
        return DecoderCache(cast(Heads, self.self_attention).new_cache(capacity, padding), MemoryCache())
