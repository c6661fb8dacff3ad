"""A small encoder-decoder: it turns one sequence into another.

:Taught in: in_the_transformer.
"""

from collections.abc import Callable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mha.checks import LAYERS, LOOPS, check_flag, check_tensor, check_whole, checked
from mha.layers.cache import ModelCache
from mha.layers.positions import SinusoidalPositions
from mha.models.blocks import Embedding, Make, Stack, made
from mha.models.generation import Choose, evaluating, greedy, unroll
from mha.models.inputs import (
    check_kind_of_cache,
    check_padding,
    check_source,
    check_token_numbers,
    next_positions,
)
from mha.models.transformer import DecoderLayer, EncoderLayer


class EncoderDecoder(nn.Module):
    """Turn one sequence into another: read the source once, then predict the target token by token.

    :Shapes: returns logits (b, n, vocabulary): row i scores the token that follows target token i.
    :Raises: ValueError or TypeError for tokens that do not exist, an empty source, and sequences longer than the
        positions.
    :Source: Vaswani et al. 2017, section 3.1.
    :Differs from the paper: embeddings are neither scaled nor shared; the norm comes first unless ``norm_first=False``.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        d_model: int,
        attention: int | Make,
        *,
        layers: int = 1,
        positions: Make | None = SinusoidalPositions,
        cross_attention: int | Make | None = None,
        feed_forward: Make | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the model.

        :param source_vocab: how many different tokens sources have.
        :param target_vocab: how many different tokens targets have.
        :param d_model: the width of all layers.
        :param attention: a number of heads, or a function that makes the layer.
        :param layers: how many the encoder has, and how many the decoder; 1 unless given.
        :param positions: a function that makes what adds positions; sinusoidal unless given, and none for None.
        :param cross_attention: a number of heads, or a function that makes the layer; as ``attention`` unless given.
        :param feed_forward: a function that makes the feed-forward part; one 4 · d_model wide unless given.
        :param norm: a function that makes a norm from the width; LayerNorm unless given.
        :param norm_first: whether the norm comes before each part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share dropped in training, of attention weights and of what each part adds; 0 unless given.
        """
        super().__init__()
        check_whole(source_vocab=source_vocab, target_vocab=target_vocab)
        check_whole(1, LAYERS, layers=layers)

        def encoder_layer() -> EncoderLayer:
            return EncoderLayer(
                d_model, attention, feed_forward=feed_forward, norm=norm, norm_first=norm_first, dropout=dropout
            )

        def decoder_layer() -> DecoderLayer:
            return DecoderLayer(
                d_model,
                attention,
                cross_attention=cross_attention,
                feed_forward=feed_forward,
                norm=norm,
                norm_first=norm_first,
                dropout=dropout,
            )

        self.source_embedding = Embedding(source_vocab, d_model, positions)
        self.target_embedding = Embedding(target_vocab, d_model, positions)
        self.encoder = Stack(encoder_layer() for _ in range(layers))
        self.decoder = Stack(decoder_layer() for _ in range(layers))
        self.encoder_norm, self.decoder_norm = (
            made("norm", norm, d_model) if norm_first else nn.Identity() for _ in range(2)
        )
        self.to_logits = nn.Linear(d_model, target_vocab)

    def forward(
        self,
        source: Int[Tensor, "b j"],
        target: Int[Tensor, "b n"],
        source_mask: Bool[Tensor, "b 1 1 j"] | None = None,
        target_mask: Bool[Tensor, "b 1 1 n"] | None = None,
    ) -> Float[Tensor, "b n w"]:
        """Encode the source, then decode the target.

        :param source: token numbers, (b, j).
        :param target: token numbers, (b, n).
        :param source_mask: (b, 1, 1, j), True = may look, by :func:`mha.padding_mask`; no padding unless given.
        :param target_mask: (b, 1, 1, n), True = may look, by :func:`mha.padding_mask`; no padding unless given.
        """
        return self.decode(target, self.encode(source, source_mask), target_mask, source_mask)

    def encode(
        self, source: Int[Tensor, "b j"], source_mask: Bool[Tensor, "b 1 1 j"] | None = None
    ) -> Float[Tensor, "b j m"]:
        """Read the source: every token may attend to every token that is not padding.

        :param source: token numbers, (b, j).
        :param source_mask: (b, 1, 1, j), True = may look, by :func:`mha.padding_mask`; no padding unless given.
        """
        check_source(source, source_mask)
        check_token_numbers(source, self.source_embedding.table.num_embeddings, "source")
        return self.encoder_norm(self.encoder(self.source_embedding(source), mask=source_mask))

    def decode(
        self,
        target: Int[Tensor, "b n"],
        memory: Float[Tensor, "b j m"],
        target_mask: Bool[Tensor, "b 1 1 n"] | None = None,
        source_mask: Bool[Tensor, "b 1 1 j"] | None = None,
        *,
        cache: ModelCache | None = None,
    ) -> Float[Tensor, "b n w"]:
        """Score the next token after each target token.

        :param target: token numbers, (b, n).
        :param memory: what :meth:`encode` returned, (b, j, d_model).
        :param target_mask: (b, 1, 1, n), True = may look, by :func:`mha.padding_mask`; no padding unless given.
        :param source_mask: (b, 1, 1, j), True = may look, by :func:`mha.padding_mask`; no padding unless given.
        :param cache: of ``decoder``; ``target`` continues what was fed to it before. No cache unless given.
        """
        check_token_numbers(target, self.target_embedding.table.num_embeddings, "target")
        check_tensor(3, memory=memory)
        check_kind_of_cache(cache, ModelCache)
        check_padding("source_mask", source_mask, target)
        check_padding("target_mask", target_mask, target)
        x = self.target_embedding(target, next_positions(cache, target))
        x = self.decoder(x, memory, mask=target_mask, memory_mask=source_mask, cache=cache)
        return self.to_logits(self.decoder_norm(x))

    def generate(
        self,
        source: Int[Tensor, "b j"],
        length: int,
        *,
        start: int,
        source_mask: Bool[Tensor, "b 1 1 j"] | None = None,
        choose: Choose = greedy,
        stop: int | None = None,
        cached: bool = True,
    ) -> Int[Tensor, "b n"]:
        """Generate the target of each source, token by token.

        :param source: token numbers, (b, j).
        :param length: at most so many tokens are generated.
        :param start: the number of the token that targets begin with; the result does not hold it.
        :param source_mask: (b, 1, 1, j), True = may look, by :func:`mha.padding_mask`; no padding unless given.
        :param choose: a function from scores (b, vocabulary) to token numbers (b,); :func:`greedy` unless given.
        :param stop: the number of the token that ends a sequence; every sequence gets the full length unless given.
        :param cached: whether a cache keeps what each step would compute again; the result is the same.
        """
        check_flag(cached=cached)
        check_whole(1, LOOPS, length=length)
        check_whole(0, start=start)
        with evaluating(self):
            memory = self.encode(source, source_mask)
            cache = self.decoder.new_cache(length) if cached else None

            def next_logits(target: Tensor) -> Tensor:
                new = target[:, 0 if cache is None else cache.length :]
                return self.decode(new, memory, source_mask=source_mask, cache=cache)[:, -1]

            begun = source.new_full((len(source), 1), start)
            return unroll(next_logits, begun, length, choose, stop)[:, 1:]
