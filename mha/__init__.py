"""Multi-head attention, in modules: the package that every chapter of the course imports.

What you need every day is here; the rest is in the modules: ``mha.functional`` (tensors in, tensors out),
``mha.layers``, ``mha.models``, ``mha.analysis``, ``mha.systems``, ``mha.data``, ``mha.viz``, ``mha.interop``, and
``mha.course``, which only the book's pages use. ``mha.reference`` is attention in plain Python, the specification of
all the rest.
"""

from mha.functional.attention import attend, attention_weights, merge_heads, split_heads
from mha.functional.masks import causal_mask, padding_mask, sliding_window
from mha.layers.cache import KeyValueCache
from mha.layers.collaborative import CollaborativeAttention
from mha.layers.composable import ComposableAttention
from mha.layers.entmax import EntmaxAttention
from mha.layers.feedback import FeedbackAttention
from mha.layers.gated import GatedAttention
from mha.layers.grouped import GroupedAttention
from mha.layers.hooks import edit, watch
from mha.layers.indexed import IndexedAttention, IndexedLatentAttention
from mha.layers.latent import LatentAttention
from mha.layers.linear import DeltaAttention, LinearAttention
from mha.layers.merged import MergedAttention
from mha.layers.multi_head import Heads, MultiHeadAttention
from mha.layers.overlapping import OverlappingAttention
from mha.layers.positions import LinearBias, RotaryPositions
from mha.layers.routed import RoutedAttention
from mha.layers.single_head import SelfAttention
from mha.layers.sinks import SinkAttention
from mha.layers.talking import TalkingAttention
from mha.viz.headview import HeadView

__version__ = "0.1.0"
__all__ = [
    "CollaborativeAttention",
    "ComposableAttention",
    "DeltaAttention",
    "EntmaxAttention",
    "FeedbackAttention",
    "GatedAttention",
    "GroupedAttention",
    "HeadView",
    "Heads",
    "IndexedAttention",
    "IndexedLatentAttention",
    "KeyValueCache",
    "LatentAttention",
    "LinearAttention",
    "LinearBias",
    "MergedAttention",
    "MultiHeadAttention",
    "OverlappingAttention",
    "RotaryPositions",
    "RoutedAttention",
    "SelfAttention",
    "SinkAttention",
    "TalkingAttention",
    "attend",
    "attention_weights",
    "causal_mask",
    "edit",
    "merge_heads",
    "padding_mask",
    "sliding_window",
    "split_heads",
    "watch",
]
