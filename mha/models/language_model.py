"""A small language model: it continues a sequence.

:Taught in: in_the_transformer, positions, depth_and_norms.
"""

from collections.abc import Callable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mha.checks import LAYERS, LOOPS, check_flag, check_whole, checked, described
from mha.layers.cache import ModelCache
from mha.layers.positions import SinusoidalPositions
from mha.models.blocks import Embedding, Make, Stack, made
from mha.models.feedback_transformer import FeedbackStack
from mha.models.generation import Choose, evaluating, greedy, unroll
from mha.models.inputs import check_kind_of_cache, check_token_numbers, next_positions
from mha.models.transformer import EncoderLayer


class LanguageModel(nn.Module):
    """Predict each next token from the tokens before it.

    :Shapes: returns logits (b, n, vocabulary): row i scores the token that follows token i.
    :Raises: ValueError or TypeError for tokens that do not exist and sequences longer than the positions.
    :Source: Vaswani et al. 2017 for the layers; Radford et al. 2019 for the decoder without an encoder.
    :Differs from the paper: the embedding is neither scaled nor shared with the output layer.
    :Taught in: in_the_transformer, positions, depth_and_norms.
    """

    @checked
    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        attention: int | Make,
        *,
        layers: int = 1,
        positions: Make | None = SinusoidalPositions,
        feed_forward: Make | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the model.

        :param vocab_size: how many different tokens there are.
        :param d_model: the width of all layers.
        :param attention: a number of heads, or a function that makes the layer.
        :param layers: how many there are; 1 unless given.
        :param positions: a function that makes what adds positions; sinusoidal unless given, and none for None.
        :param feed_forward: a function that makes the feed-forward part; one 4 · d_model wide unless given.
        :param norm: a function that makes a norm from the width; LayerNorm unless given.
        :param norm_first: whether the norm comes before each part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share dropped in training, of attention weights and of what each part adds; 0 unless given.
        """
        super().__init__()
        check_whole(1, LAYERS, layers=layers)
        self.embedding = Embedding(vocab_size, d_model, positions)
        self.decoder: Stack | FeedbackStack = Stack(
            EncoderLayer(
                d_model, attention, feed_forward=feed_forward, norm=norm, norm_first=norm_first, dropout=dropout
            )
            for _ in range(layers)
        )
        self.norm = made("norm", norm, d_model) if norm_first else nn.Identity()
        self.to_logits = nn.Linear(d_model, vocab_size)

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        cache: ModelCache | None = None,
        position_ids: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n w"]:
        """Embed, run the causal layers, score all tokens.

        :param tokens: token numbers, (b, n); with a cache they continue what was fed before.
        :param mask: (n, n) or (b, h, n, n), True = may look, beside the causal mask; no more is hidden unless given.
        :param cache: of ``decoder``, by its ``new_cache``; no cache unless given.
        :param position_ids: the positions of all tokens, (b, n), as packed sequences need them; otherwise they are
            counted from 0 on, or from what the cache holds, without its padding.
        """
        check_kind_of_cache(cache, ModelCache)
        x = self.embedding(tokens, next_positions(cache, tokens, position_ids))
        x = self.decoder(x, mask=mask, is_causal=True, cache=cache)
        return self.to_logits(self.norm(x))

    def generate(
        self,
        tokens: Int[Tensor, "b n"],
        length: int,
        *,
        choose: Choose = greedy,
        stop: int | None = None,
        cached: bool = True,
        padding: Tensor | list[int] | None = None,
    ) -> Int[Tensor, "b m"]:
        """Continue each prompt, token by token; the result begins with the prompt.

        :param tokens: the prompts, token numbers (b, n).
        :param length: at most so many tokens are added.
        :param choose: a function from scores (b, vocabulary) to token numbers (b,); :func:`greedy` unless given.
        :param stop: the number of the token that ends a sequence; every sequence gets the full length unless given.
        :param cached: whether a cache keeps what each step would compute again; the result is the same.
        :param padding: how many positions in front of each prompt are padding, (b,); none unless given. A cache hides
            it.
        """
        check_flag(cached=cached)
        if padding is not None and not cached:
            raise ValueError(
                f"padding = {described(padding)}, cached = False: the cache hides the padding, so take one"
            )
        check_whole(1, LOOPS, length=length)
        check_token_numbers(tokens, self.embedding.table.num_embeddings)
        with evaluating(self):
            cache = self.decoder.new_cache(tokens.shape[1] + length, padding) if cached else None

            def next_logits(tokens: Tensor) -> Tensor:
                return self(tokens[:, 0 if cache is None else cache.length :], cache=cache)[:, -1]

            return unroll(next_logits, tokens, length, choose, stop)
