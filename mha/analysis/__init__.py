"""What trained heads do, and which may go."""

from mha.analysis.gates import Gates, HardConcrete
from mha.analysis.importance import head_importance
from mha.analysis.leaks import leaks
from mha.analysis.pruning import only, pruned, strongest

__all__ = ["Gates", "HardConcrete", "head_importance", "leaks", "only", "pruned", "strongest"]
