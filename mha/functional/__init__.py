"""Tensors in, tensors out: attention without weights of its own."""

from mha.functional.composed import attend_in_chunks
from mha.functional.decomposition import Shared, fit_shared, keep_largest
from mha.functional.entmax import entmax
from mha.functional.masks import from_key_padding
from mha.functional.tiled import tiled_attention

__all__ = ["Shared", "attend_in_chunks", "entmax", "fit_shared", "from_key_padding", "keep_largest", "tiled_attention"]
