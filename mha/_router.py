"""Which router a layer gets, and what it costs."""

from torch import nn

from mha._count import Cost, count_linear, count_weights
from mha.hard_routing import NormRouter
from mha.routing import HeadRouter

GATES = ("released", "paper", "norms")


def make_router(d_model: int, heads: int, shared: int, chosen: int, gates: str) -> HeadRouter | NormRouter:
    """Make the router that ``gates`` names: "released", "paper" or "norms".

    Raises: ValueError where no head works, or some heads never could, or more are to be chosen than are routed.
    """
    routed = heads - shared
    if gates not in GATES:
        raise ValueError(f"gates = {gates!r}: give one of {GATES}")
    if not 0 <= shared <= heads or not 0 <= chosen <= routed:
        raise ValueError(
            f"shared = {shared}, chosen = {chosen} of {heads} heads: take 0 to {heads} shared heads, and choose at "
            f"most as many as are routed, heads − shared = {routed}; shared heads do not count as chosen"
        )
    if chosen == 0 and routed:
        which = "no head is active" if shared == 0 else f"heads {shared} to {heads - 1} could never be active"
        raise ValueError(f"shared = {shared}, chosen = 0 of {heads} heads: {which}. Choose at least 1, or share all")
    by_norm = gates == "norms"
    split = shared, routed, chosen
    return NormRouter(*split) if by_norm else HeadRouter(d_model, *split, released=gates == "released")


def count_router(router: nn.Module, queries: int) -> Cost:
    """Count the router's products for so many queries."""
    linears = {name: part for name, part in router.named_children() if isinstance(part, nn.Linear)}
    parts = {name: count_linear(linear, queries) for name, linear in linears.items()}
    weights = count_weights(*linears.values())
    return Cost(weights, parts, sum(p.nbytes for p in router.parameters()), 0, 0)
