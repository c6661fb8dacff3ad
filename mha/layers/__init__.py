"""Attention layers, one file a kind, and what they share: positions, caches, hooks, costs."""

from mha.layers.base import attention_layers
from mha.layers.cache import MemoryCache
from mha.layers.collaborative import collaborate, products
from mha.layers.cost import Cost, Part
from mha.layers.feedback import FeedbackMemory
from mha.layers.grouped import align_heads
from mha.layers.hooks import Seen
from mha.layers.merged import MergedCache
from mha.layers.overlapping import overlap_heads, overlap_schedule, widen
from mha.layers.positions import LearnedPositions, SinusoidalPositions, one_hot_positions, sinusoidal_positions, slopes
from mha.layers.routers import HeadRouter, NormRouter, balance_loss, choose
from mha.layers.talking import mix

__all__ = [
    "Cost",
    "FeedbackMemory",
    "HeadRouter",
    "LearnedPositions",
    "MemoryCache",
    "MergedCache",
    "NormRouter",
    "Part",
    "Seen",
    "SinusoidalPositions",
    "align_heads",
    "attention_layers",
    "balance_loss",
    "choose",
    "collaborate",
    "mix",
    "one_hot_positions",
    "overlap_heads",
    "overlap_schedule",
    "products",
    "sinusoidal_positions",
    "slopes",
    "widen",
]
