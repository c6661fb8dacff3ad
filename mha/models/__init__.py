"""What is built around the layers: blocks, language models, a translator; generation and training."""

from mha.models.blocks import FeedForward, Residual, Stack
from mha.models.encoder_decoder import EncoderDecoder
from mha.models.feedback_transformer import FeedbackCache, FeedbackLayer, FeedbackStack
from mha.models.generation import evaluating, greedy, sampling, unroll
from mha.models.language_model import LanguageModel
from mha.models.merged_decoder import MergedDecoderLayer, depth_scaled_init
from mha.models.training import Muon, MuonAndAdamW, round_weights, smooth, train
from mha.models.transformer import DecoderLayer, EncoderLayer

__all__ = [
    "DecoderLayer",
    "EncoderDecoder",
    "EncoderLayer",
    "FeedForward",
    "FeedbackCache",
    "FeedbackLayer",
    "FeedbackStack",
    "LanguageModel",
    "MergedDecoderLayer",
    "Muon",
    "MuonAndAdamW",
    "Residual",
    "Stack",
    "depth_scaled_init",
    "evaluating",
    "greedy",
    "round_weights",
    "sampling",
    "smooth",
    "train",
    "unroll",
]
