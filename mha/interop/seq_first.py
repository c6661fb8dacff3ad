"""The other layout: sequence first, batch second, and heads before channels in every step.

:Taught in: in_the_transformer.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha.checks import check_is_tensor, check_padded, checked
from mha.functional.masks import from_seq_first
from mha.layers.multi_head import Heads


def check_seq_first(name: str, x: Tensor) -> None:
    """Refuse what has not three axes."""
    check_is_tensor(name, x)
    check_padded(**{name: x})
    if x.ndim != 3:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, but must be (sequence, batch, channels)")


class SeqFirst(nn.Module):
    """Call a layer the way sequence-first libraries do; inside, the same layer does the same work.

    :Shapes: returns (i, b, d_model).
    :Raises: ValueError or TypeError for inputs and masks that do not fit.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, layer: Heads) -> None:
        """Wrap a batch-first layer.

        :param layer: a layer of ours; its parameters are used, no copy.
        """
        super().__init__()
        self.layer = layer

    def forward(
        self,
        query: Float[Tensor, "i b m"],
        key: Float[Tensor, "j b mk"] | None = None,
        value: Float[Tensor, "j b mv"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
    ) -> Float[Tensor, "i b m"]:
        """Exchange sequence and batch, attend, and exchange them back.

        :param query: what asks, (i, b, d_model).
        :param key: what is compared with, (j, b, kdim); the query unless given.
        :param value: what is read, (j, b, vdim); the key unless given.
        :param mask: (i, j, b), where i and b may be 1, True = may look; everything may be looked at unless given.
        :param is_causal: whether each token sees only itself and what came before.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x is not None:
                check_seq_first(name, x)
        given = {id(x): x.transpose(0, 1) for x in (query, key, value) if x is not None}  # one tensor stays one
        batch_first = (given.get(id(x)) for x in (query, key, value))
        mask = None if mask is None else self.prepare_mask(mask, query, query if key is None else key)
        return self.layer(*batch_first, mask=mask, is_causal=is_causal).transpose(0, 1)

    def prepare(self, x: Float[Tensor, "n b m"], part: str = "q") -> Float[Tensor, "n b h d"]:
        """Project and split into heads, the step that such libraries call *prepare*: no axis is exchanged.

        :param x: one vector for each token, (n, b, d_model).
        :param part: which projection, "q", "k" or "v"; "q" unless given.
        """
        if part not in ("q", "k", "v"):
            raise ValueError(f"part = {part!r}: it is one of 'q', 'k', 'v'")
        heads = self.layer.heads if part == "q" else self.layer.kv_heads
        return self.layer.get_submodule(f"W_{part}")(x).unflatten(-1, (heads, -1))

    def prepare_mask(self, mask: Tensor, query: Tensor, key: Tensor) -> Bool[Tensor, "b 1 i j"]:
        """Check a mask (query, key, batch) and bring it into the order (batch, head, query, key).

        :param mask: (i, j, b), where i and b may be 1, True = may look.
        :param query: (i, b, d_model), for its sizes.
        :param key: (j, b, kdim), for its sizes.
        """
        check_is_tensor("mask", mask)
        (i, b), j = query.shape[:2], key.shape[0]
        if mask.ndim != 3 or mask.shape[0] not in (1, i) or mask.shape[1] != j or mask.shape[2] not in (1, b):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}, but must be (query, key, batch) = ({i} or 1, {j}, {b} or 1): "
                "for a (query, key) mask use mask[:, :, None], for a (batch, key) mask use mask.T[None]"
            )
        return from_seq_first(mask)
