"""Names for heads, by published rules.

Taught in: chapter 09.
"""

from collections.abc import Mapping

from jaxtyping import Bool, Float
from torch import Tensor

from mha.detect import found
from mha.null import best_offset
from mha.targets import offset

POSITIONAL = 0.9  # the largest weight on one neighbor in at least 90 % of the cases
BETTER = 0.1  # a head follows a rule of syntax where it beats the best fixed offset by ten points


def classify(
    weights: Float[Tensor, "b h i j"], rules: Mapping[str, Bool[Tensor, "..."]] | None = None
) -> list[list[str]]:
    """Name what each head does, by the published rules; a head may get several names or none.

    "previous" or "next": the largest weight is on this neighbor in at least 90 % of the cases. A rule of your own,
    such as {"bracket": targets}, names a head whose argmax beats the best fixed offset by ten points.

    Shapes: weights (b, h, i, j), rules (i, j) or (b, i, j); one list of names for each of the h heads.
    Source: Voita et al. 2019, sections 5.2.1 and 5.2.2.
    Differs from the paper: its ten percent can be read as points, as here, or as a ratio.
    Taught in: chapter 09.
    """
    i, j = weights.shape[-2:]
    neighbors = {"previous": offset(i, -1, keys=j), "next": offset(i, 1, keys=j)}
    bars = {name: (found(weights, t).argmax, POSITIONAL) for name, t in neighbors.items() if t.any()}
    for name, targets in (rules or {}).items():
        bars[name] = found(weights, targets).argmax, best_offset(targets)[1] + BETTER
    return [[name for name, (share, bar) in bars.items() if share[h] >= bar] for h in range(weights.shape[1])]
