"""What a variant needs to know of the plain layer that it is made from."""

from torch import nn

from mha.attention import MultiHeadAttention


def settings(layer: nn.Module, letters: str = "qkvo") -> dict:
    """Return the constructor's keywords of a plain layer, with the biases that the variant can have.

    Raises: ValueError for another kind of layer, and for positions that turn queries and keys inside the heads.
    """
    name = type(layer).__name__
    if not isinstance(layer, MultiHeadAttention):
        raise ValueError(f"{name} is no plain layer: give a MultiHeadAttention")
    if layer.positions is not None:
        inside = type(layer.positions).__name__
        raise ValueError(f"this layer has {inside} inside, which belong to heads of their own: take one without them")
    return {
        "d_model": layer.d_model,
        "heads": layer.heads,
        "d_head": layer.d_head,
        "kdim": layer.W_k.in_features,
        "vdim": layer.W_v.in_features,
        "bias": "".join(letter for letter in letters if getattr(layer, f"W_{letter}").bias is not None),
        "dropout": layer.dropout,
    }
