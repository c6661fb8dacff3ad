"""What only the book's pages use: exercises, questions, bugs, the comparison of all layers."""

import sys
import warnings
from importlib import import_module
from importlib.util import find_spec

if "ipykernel" in sys.modules and find_spec("tqdm") is not None:
    with warnings.catch_warnings():  # without ipywidgets, the progress bars that transformers imports complain
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")

TOPICS = (  # the chapters in the order of the book, named as their notebooks are
    "why_attention",
    "why_scale",
    "masking",
    "why_many_heads",
    "split_and_merge",
    "output_projection",
    "in_the_transformer",
    "positions",
    "depth_and_norms",
    "reading_heads",
    "pruning_heads",
    "counting_cost",
    "cache_and_sharing",
    "across_machines",
    "say_nothing",
    "compress",
    "overwrite",
    "select",
    "collaborate",
    "overlap",
    "route",
    "compose",
    "sparsify",
    "merge_and_deepen",
    "feed_back",
    "choosing",
)
