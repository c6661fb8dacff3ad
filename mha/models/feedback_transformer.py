"""A stack of layers that goes through a sequence step by step, because each step reads the top of the one before.

:Taught in: feed_back.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_flag, check_tensor, check_whole, checked, described
from mha.layers.cache import ModelCache
from mha.layers.feedback import FeedbackAttention, FeedbackMemory
from mha.models.blocks import FeedForward, Make, Residual, made
from mha.models.inputs import check_is_cache, check_kind_of_cache


class FeedbackCache(ModelCache):
    """The state of a feedback stack: the memory of each layer, and the newest one, which no layer has read yet.

    :Taught in: feed_back.
    """

    length = 0  # tokens fed so far: the memories of the layers are one step behind
    newest: Tensor | None = None

    def mask(self, new: int) -> None:
        """Hide nothing: this cache knows of no padding.

        :param new: how many tokens are new.
        """
        check_whole(new=new)


def check_newest(x: Tensor, newest: Tensor | None) -> None:
    """Refuse a memory that does not belong to the token."""
    check_tensor(3, x=x)
    if x.shape[1] != 1 or 0 in x.shape:
        raise ValueError(f"x has shape {tuple(x.shape)}, but must be (batch, 1, channels): one step at a time")
    if newest is not None:
        check_tensor(3, newest=newest)
        if newest.shape != x.shape:
            raise ValueError(f"newest has shape {tuple(newest.shape)}, but x has {tuple(x.shape)}: both must be alike")


class FeedbackLayer(nn.Module):
    """Attend to the memory of earlier steps, then feed forward.

    :Shapes: returns (b, 1, d_model).
    :Source: Fan et al. 2020, section 3.
    :Taught in: feed_back.
    """

    @checked
    def __init__(
        self,
        d_model: int,
        attention: int | Callable[[], FeedbackAttention],
        *,
        feed_forward: Make | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the layer.

        :param d_model: the width of input and output.
        :param attention: a number of heads, or a function that makes a feedback layer.
        :param feed_forward: a function that makes the feed-forward part; one 4 · d_model wide unless given.
        :param norm: a function that makes a norm from the width; LayerNorm unless given.
        :param norm_first: whether the norm comes before each part (pre-norm) instead of after the sum (post-norm).
        :param dropout: the share dropped in training, of attention weights and of what each part adds; 0 unless given.
        """
        super().__init__()
        if isinstance(attention, int):
            self.attention = FeedbackAttention(d_model, attention, dropout=dropout)
        else:
            self.attention = made("attention", attention)
        self.feed_forward = (
            made("feed_forward", feed_forward) if feed_forward else FeedForward(d_model, 4 * d_model, dropout=dropout)
        )
        self.around_attention = Residual(d_model, norm, norm_first, dropout)
        self.around_feed_forward = Residual(d_model, norm, norm_first, dropout)

    def forward(
        self, x: Float[Tensor, "b 1 m"], newest: Float[Tensor, "b 1 m"] | None, cache: FeedbackMemory
    ) -> Float[Tensor, "b 1 m"]:
        """Add the newest memory to the cache, read all of it, feed forward.

        :param x: the vector of the present token, (b, 1, d_model).
        :param newest: the memory of the step before, (b, 1, d_model); None at the first step, which has nothing to
            read.
        :param cache: the memories before it, which ``newest`` joins.
        """
        check_is_cache(cache, FeedbackMemory)
        check_newest(x, newest)
        read = torch.zeros_like if newest is None else lambda x: self.attention(x, newest, cache=cache)
        return self.around_feed_forward(self.around_attention(x, read), self.feed_forward)


class FeedbackStack(nn.Module):
    """Go through a sequence token by token; every layer reads the memories of earlier tokens, which hold all layers.

    The memory of a step is m = Σ_l w_l x_l: the input and the output of every layer, with learned weights w that sum
    to 1 (softmax of ``mixing``). All layers read the same memories. In a language model it is the ``decoder``:
    ``model.decoder = FeedbackStack(…)``.

    :Costs: layers + 1 parameters for the mixture; n steps, one after the other, also in training. With ``share`` each
        memory is projected once.
    :Shapes: returns (b, n, d_model).
    :Raises: ValueError where there is no layer, for a mask, and where the future would be allowed.
    :Source: Fan et al. 2020, section 3 and equation 1.
    :Taught in: feed_back.
    """

    @checked
    def __init__(self, layers: Iterable[FeedbackLayer], *, share: bool = False) -> None:
        """Take the layers, and mix their outputs evenly at first.

        :param layers: feedback layers of one width, first one first; at least 1.
        :param share: whether all layers use ``W_k`` and ``W_v`` of the first.
        """
        super().__init__()
        self.layers, self.share = cast(Sequence[FeedbackLayer], nn.ModuleList(layers)), share
        if not len(self.layers):
            raise ValueError("layers = []: a stack needs at least 1")
        self.mixing = nn.Parameter(torch.zeros(len(self.layers) + 1))
        for layer in self.layers if share else ():
            layer.attention.W_k, layer.attention.W_v = self.layers[0].attention.W_k, self.layers[0].attention.W_v

    def forward(
        self,
        x: Float[Tensor, "b n m"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = True,
        cache: FeedbackCache | None = None,
    ) -> Float[Tensor, "b n m"]:
        """Step through the tokens.

        :param x: one vector for each token, (b, n, d_model).
        :param mask: None: a stack that steps from left to right takes no mask.
        :param is_causal: True: no step can see a later one.
        :param cache: of this stack, whose tokens x continues; a new one unless given.
        """
        check_flag(is_causal=is_causal)
        check_kind_of_cache(cache, FeedbackCache)
        check_tensor(3, x=x)
        if mask is not None or not is_causal:
            raise ValueError(
                f"mask = {described(mask)}, is_causal = {is_causal}: a feedback stack steps from left to right and "
                "takes no mask: put the padding of shorter sequences at the end, where no token reads it"
            )
        cache = self.new_cache() if cache is None else cache
        return torch.cat([self.step(token, cache) for token in x.split(1, 1)], 1)

    def step(self, x: Float[Tensor, "b 1 m"], cache: FeedbackCache) -> Float[Tensor, "b 1 m"]:
        """Pass one token through all layers, and mix what they made of it into the newest memory.

        :param x: the vector of the token, (b, 1, d_model).
        :param cache: of this stack; the newest memory is kept in it.
        """
        check_is_cache(cache, FeedbackCache)
        check_newest(x, cache.newest)
        states = [x]
        for layer, own in zip(self.layers, cache, strict=True):
            states.append(layer(states[-1], cache.newest, own))
        cache.newest = torch.stack(states, -1) @ self.mixing.softmax(0)
        cache.length += 1
        return states[-1]

    @checked
    def new_cache(self, capacity: int = 1024, padding: Tensor | list[int] | None = None) -> FeedbackCache:
        """Make empty memories, one for each layer, or one for all that share.

        :param capacity: without effect: how long a memory can grow, ``steps`` of its layer decides; 1024 unless given.
        :param padding: None: these memories know of no padding.
        """
        first = self.layers[0].attention.new_cache(capacity, padding)
        return FeedbackCache(first if self.share else layer.attention.new_cache(capacity) for layer in self.layers)
