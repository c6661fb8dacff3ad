"""From shared KV heads with rotary positions to a latent: mix the heads pair by pair, and balance keys and values.

Rotary positions rotate pair p of every head by the same angle. So an orthogonal matrix across the heads, one for each
pair and equal for both of its channels, commutes with them: queries and keys that are both mixed by it give the old
scores.

:Taught in: cache_and_sharing.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from mha.checks import check_finite, checked
from mha.functional.latent import Latent, fit_latent
from mha.functional.procrustes import pairs

LAYOUTS = ("half", "interleaved")


@checked
def principal_mixing(keys: Float[Tensor, "g n d"], layout: str = "half") -> Float[Tensor, "pairs g g"]:
    """Find, for each pair of channels, the directions across the heads in which the keys of the tokens are longest.

    Row 0 is the direction with the largest sum of squares, row 1 the next one at a right angle, and so on. Mixed with
    it (:func:`mix_heads`), the first head holds as much of the keys as one head can.

    :param keys: what each KV head makes of n tokens, before positions rotate it, (g, n, d).
    :param layout: how rotary positions pair the channels, "half" or "interleaved"; the first unless given.
    :Shapes: returns one orthogonal matrix for each pair of channels, (d / 2, g, g).
    :Raises: ValueError for an odd or empty axis, for keys that are all zero, and for another layout.
    :Source: Meng et al. 2025, "TransMLA".
    :Taught in: cache_and_sharing.
    """
    two = _two(keys, layout, "keys").double()
    if not two.any():
        raise ValueError(f"keys of shape {tuple(keys.shape)} are all zero: no direction is longer than another")
    products = torch.einsum("agnp,ahnp->pgh", two, two)
    directions: Tensor = torch.linalg.eigh(products).eigenvectors  # columns, the shortest first
    return directions.flip(-1).mT.to(keys)


@checked
def mix_heads(
    heads: Float[Tensor, "*b g n d"], mixing: Float[Tensor, "pairs g g"], layout: str = "half"
) -> Float[Tensor, "*b g n d"]:
    """Mix heads by an orthogonal matrix for each pair of channels; this commutes with rotary positions.

    ``mix_heads(mixed, mixing.mT)`` takes it back.

    :param heads: keys, or queries that are zero outside the KV head which they read, (…, g, n, d).
    :param mixing: for each pair of channels, row m says how much of each head goes into mixed head m, (d / 2, g, g).
    :param layout: how rotary positions pair the channels, "half" or "interleaved"; the first unless given.
    :Shapes: returns the mixed heads, (…, g, n, d).
    :Raises: ValueError where the matrices are not orthogonal, or where their number or size does not fit; TypeError
        for another type than that of the heads.
    :Source: Meng et al. 2025, "TransMLA".
    :Taught in: cache_and_sharing.
    """
    two = _two(heads, layout, "heads")
    check_finite(mixing=mixing)
    if mixing.dtype != heads.dtype or mixing.device != heads.device:
        raise TypeError(
            f"mixing is {mixing.dtype} on {mixing.device}, but heads are {heads.dtype} on {heads.device}: use "
            "mixing.to(heads)"
        )
    g, d = heads.shape[-3], heads.shape[-1]
    if tuple(mixing.shape) != (d // 2, g, g):
        raise ValueError(
            f"mixing has shape {tuple(mixing.shape)}, but heads {tuple(heads.shape)} need {(d // 2, g, g)}: one matrix "
            "for each pair of channels"
        )
    off = float((mixing.double() @ mixing.double().mT - torch.eye(g, device=mixing.device)).abs().max())
    if off > 1e3 * torch.finfo(mixing.dtype).eps:
        raise ValueError(
            f"mixing is not orthogonal, by {off:.1g}: mixed queries and keys would give other scores. Take matrices "
            "such as those of principal_mixing"
        )
    mixed = torch.einsum("pmg,a...gnp->a...mnp", mixing, two)
    order = torch.cat(pairs(d, layout)).argsort().to(heads.device)
    return torch.cat([mixed[0], mixed[1]], -1)[..., order]


def _two(heads: Tensor, layout: str, name: str) -> Tensor:
    """Take the two channels of each pair apart: (2, …, g, n, pairs)."""
    check_finite(**{name: heads})
    if layout not in LAYOUTS:
        raise ValueError(f"layout = {layout!r}: it is one of {LAYOUTS}")
    if heads.shape[-1] % 2 or 0 in heads.shape:
        raise ValueError(f"{name} have shape {tuple(heads.shape)}: give some, of an even width, which makes pairs")
    first, second = (channels.to(heads.device) for channels in pairs(heads.shape[-1], layout))
    return torch.stack([heads[..., first], heads[..., second]])


@checked
def fit_balanced_latent(
    w_k: Float[Tensor, "k m"], w_v: Float[Tensor, "v m"], d_latent: int, tokens: Float[Tensor, "... m"] | None = None
) -> Latent:
    """Find the latent of :func:`fit_latent` with keys that count as much as values, however large they are.

    A layer does not notice if its keys are multiplied by a number and its queries divided by it, and neither does this
    latent. The keys are brought to the size of the values first, and back afterwards. Where keys or values of the
    tokens are all zero, there is nothing to balance.

    :param w_k: the keys' weight matrix as ``nn.Linear`` stores it, (k, m).
    :param w_v: that of the values, (v, m).
    :param d_latent: the width of the latent, c.
    :param tokens: embeddings that the layer reads, (..., m); without them the matrices are balanced.
    :Shapes: as :func:`fit_latent`.
    :Raises: ValueError as :func:`fit_latent`.
    :Source: Meng et al. 2025, "TransMLA".
    :Taught in: cache_and_sharing.
    """
    check_finite(w_k=w_k, w_v=w_v)
    if tokens is not None:
        check_finite(tokens=tokens)
    keys, values = w_k, w_v
    if tokens is not None and tokens.shape[-1:] == w_k.shape[1:] == w_v.shape[1:]:  # fit_latent refuses all others
        keys, values = (tokens.double() @ w.to(tokens.device).double().mT for w in (w_k, w_v))
    sizes = [float(one.double().norm()) for one in (keys, values)]
    ratio = sizes[1] / sizes[0] if all(sizes) else 1.0
    found = fit_latent(w_k * ratio, w_v, d_latent, tokens)
    return found._replace(keys=found.keys / ratio)
