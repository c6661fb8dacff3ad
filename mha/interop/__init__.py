"""Pretrained weights: to and from ``nn.MultiheadAttention`` and the attention of ``transformers``.

Everything that does not fit is refused by name; nothing is ignored. ``transformers`` is imported only where it is
needed.

:Taught in: in_the_transformer.
"""

from mha.interop.hugging_face import from_pretrained, from_transformers, to_transformers
from mha.interop.pytorch import from_torch, to_torch
from mha.interop.released import ReleasedAttention
from mha.interop.rotary import relayout, reorder_rows
from mha.interop.seq_first import SeqFirst
from mha.interop.swapping import swap

__all__ = [
    "ReleasedAttention", "SeqFirst", "from_pretrained", "from_torch", "from_transformers", "relayout",
    "reorder_rows", "swap", "to_torch", "to_transformers",
]  # fmt: skip
