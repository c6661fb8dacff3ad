"""What trained heads do, and which may go: importance, gates, masks, pruning, and a detector of leaks."""

from mha.analysis.gates import Gates, HardConcrete
from mha.analysis.importance import head_importance
from mha.analysis.leaks import leaks
from mha.analysis.pruning import mask_heads, prune_heads, top_heads

__all__ = ["Gates", "HardConcrete", "head_importance", "leaks", "mask_heads", "prune_heads", "top_heads"]
