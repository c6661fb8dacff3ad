"""Attention layers, one file per kind, and what they share: positions, caches, hooks, costs."""

from mha.layers.cache import DecoderCache, KeyValueCache, MemoryCache, ModelCache, WindowCache
from mha.layers.clipping import clip_query_keys
from mha.layers.collaborative import CollaborativeAttention, collaborate, products
from mha.layers.composable import ComposableAttention, ComposedCache
from mha.layers.cost import Cost, Part
from mha.layers.entmax import EntmaxAttention
from mha.layers.feedback import FeedbackAttention, FeedbackMemory
from mha.layers.gated import GatedAttention
from mha.layers.grouped import Aligned, GroupedAttention, align_heads
from mha.layers.hooks import Seen, edit, watch
from mha.layers.indexed import (
    IndexedAttention,
    IndexedCache,
    IndexedLatentAttention,
    IndexedLatentCache,
)
from mha.layers.latent import LatentAttention, LatentCache, compress
from mha.layers.linear import DeltaAttention, LinearAttention, StateCache
from mha.layers.merged import MergedAttention, MergedCache
from mha.layers.multi_head import Heads, MultiHeadAttention, attention_layers
from mha.layers.overlapping import OverlappingAttention, overlap_heads, overlap_schedule, widen
from mha.layers.positions import (
    LearnedPositions,
    LinearBias,
    RotaryPositions,
    SinusoidalPositions,
    one_hot_positions,
    sinusoidal_positions,
    slopes,
)
from mha.layers.routed import RoutedAttention
from mha.layers.routers import HeadRouter, NormRouter, balance_loss, choose
from mha.layers.sharing import share_heads
from mha.layers.single_head import SelfAttention
from mha.layers.sinks import SinkAttention
from mha.layers.talking import TalkingAttention, mix

__all__ = [
    "Aligned",
    "CollaborativeAttention",
    "ComposableAttention",
    "ComposedCache",
    "Cost",
    "DecoderCache",
    "DeltaAttention",
    "EntmaxAttention",
    "FeedbackAttention",
    "FeedbackMemory",
    "GatedAttention",
    "GroupedAttention",
    "HeadRouter",
    "Heads",
    "IndexedAttention",
    "IndexedCache",
    "IndexedLatentAttention",
    "IndexedLatentCache",
    "KeyValueCache",
    "LatentAttention",
    "LatentCache",
    "LearnedPositions",
    "LinearAttention",
    "LinearBias",
    "MemoryCache",
    "MergedAttention",
    "MergedCache",
    "ModelCache",
    "MultiHeadAttention",
    "NormRouter",
    "OverlappingAttention",
    "Part",
    "RotaryPositions",
    "RoutedAttention",
    "Seen",
    "SelfAttention",
    "SinkAttention",
    "SinusoidalPositions",
    "StateCache",
    "TalkingAttention",
    "WindowCache",
    "align_heads",
    "attention_layers",
    "balance_loss",
    "choose",
    "clip_query_keys",
    "collaborate",
    "compress",
    "edit",
    "mix",
    "one_hot_positions",
    "overlap_heads",
    "overlap_schedule",
    "products",
    "share_heads",
    "sinusoidal_positions",
    "slopes",
    "watch",
    "widen",
]
