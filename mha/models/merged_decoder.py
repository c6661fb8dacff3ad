"""What makes a deep decoder easier to train: two sublayers in place of three, and depth-scaled initialization.

:Taught in: merge_and_deepen.
"""

import math
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_tensor, checked
from mha.layers.merged import MergedAttention, MergedCache, check_own_mask
from mha.layers.projections import check_own_weights
from mha.models.blocks import FeedForward, Make, Residual, made
from mha.models.inputs import check_kind_of_cache, check_named


class MergedDecoderLayer(nn.Module):
    """Average the tokens so far and attend to the memory in one step, then feed forward.

    Where it replaces :class:`DecoderLayer`, a model needs ``model.decoder = Stack(…)`` of these.

    :Changes: one sublayer where a decoder layer has two: there are two residual sums and two norms, not three.
    :Costs: 4 · d_model² fewer parameters than a decoder layer.
    :Shapes: returns (b, n, d_model).
    :Source: Zhang et al. 2019, the merged attention sublayer.
    :Differs from the paper: the norm comes first unless ``norm_first=False``; the activation is GELU.
    :Taught in: merge_and_deepen.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        attention: int | Callable[[], MergedAttention],
        *,
        feed_forward: Make | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the layer.

        :param d_model: the width of input and output.
        :param attention: a number of heads, or a function that makes a merged layer.
        :param feed_forward: a function that makes the feed-forward part; one 4 · d_model wide unless given.
        :param norm: a function that makes a norm from the width; LayerNorm unless given.
        :param norm_first: whether the norm comes before each part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share dropped in training, of attention weights and of what each part adds; 0 unless given.
        """
        super().__init__()
        if isinstance(attention, int):
            self.attention = MergedAttention(d_model, attention, dropout=dropout)
        else:
            self.attention = made("attention", attention)
        self.feed_forward = (
            made("feed_forward", feed_forward) if feed_forward else FeedForward(d_model, 4 * d_model, dropout=dropout)
        )
        self.around_attention = Residual(d_model, norm, norm_first, dropout)
        self.around_feed_forward = Residual(d_model, norm, norm_first, dropout)

    def forward(
        self,
        x: Float[Tensor, "b n m"],
        memory: Float[Tensor, "b j m"],
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        *,
        cache: MergedCache | None = None,
    ) -> Float[Tensor, "b n m"]:
        """Attend to the memory and average the tokens so far, then feed forward.

        :param x: one vector for each token, (b, n, d_model).
        :param memory: what the encoder made of the source, (b, j, d_model).
        :param mask: which of the decoder's tokens are no padding, (b, 1, 1, n), True = may look; all unless given.
        :param memory_mask: (n, j) or (b, h, n, j), True = may look; everything may be looked at unless given.
        :param cache: what earlier calls kept, by :meth:`new_cache`; no cache unless given.
        """
        check_tensor(3, memory=memory)
        check_named("memory_mask", memory_mask)
        if mask is not None:
            check_own_mask(mask, x, "mask")
        check_kind_of_cache(cache, MergedCache)
        x = self.around_attention(x, lambda x: self.attention(x, memory, mask=memory_mask, own_mask=mask, cache=cache))
        return self.around_feed_forward(x, self.feed_forward)

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> MergedCache:
        """Make an empty cache for this layer.

        :param capacity: without effect, because a running sum does not grow; 1024 unless given.
        :param padding: None: a running sum knows of no padding.
        """
        return self.attention.new_cache(capacity, padding)


@checked
@torch.no_grad()
def depth_scaled_init(
    layers: Iterable[nn.Module],
    alpha: float = 1.0,
    *,
    released: bool = False,
    generator: torch.Generator | None = None,
) -> None:
    """Draw the matrices of a stack anew, the deeper the layer the smaller: depth-scaled initialization.

    In layer l, counted from 1, weight matrices are uniform in ±α · √(6 / (d_in + d_out)) / √l: for l = 1 and α = 1 this
    is Xavier's initialization. Biases, norms and embeddings stay as they are. An encoder and a decoder are two stacks.

    :param layers: of one stack, first one first; at least 1.
    :param alpha: what all ranges are multiplied by, positive; 1 unless given.
    :param released: whether the rule is that of the released code; the paper's unless given.
    :param generator: where the random numbers come from; torch's own unless given.
    :Raises: ValueError where there is no layer, or ``alpha`` is not positive.
    :Source: Zhang et al. 2019, DS-Init, for the formula; Glorot and Bengio 2010 for the first layer.
    :Differs from the released code: there the factor scales the variance, so the range falls with the fourth root of l:
        ``released=True`` repeats ±√α · √(6 / (d_in + d_out)) / l^¼.
    :Taught in: merge_and_deepen.
    """
    layers = list(layers)
    if not layers or not alpha > 0:
        raise ValueError(f"{len(layers)} layers, alpha = {alpha}: there must be at least 1 layer, and a positive alpha")
    for layer in layers:
        check_own_weights(layer)
    for depth, layer in enumerate(layers, 1):
        shrink = math.sqrt(alpha) / depth**0.25 if released else alpha / math.sqrt(depth)
        for linear in (part for part in layer.modules() if isinstance(part, nn.Linear)):
            bound = shrink * math.sqrt(6 / (linear.in_features + linear.out_features))
            linear.weight.uniform_(-bound, bound, generator=generator)
