"""Trained attention by the name of its checkpoint.

Taught in: chapter 07.
"""

import os
from importlib import import_module

from mha.attention import Heads
from mha.interop.hugging_face import PLANS, from_transformers

INSTALL = "pip install 'mha-course[interop]'"


def from_pretrained(name: str | os.PathLike, layer: int = 0) -> Heads:
    """Load the attention of one layer of a trained BERT, GPT-2 or Llama.

    ``name`` is what ``transformers`` knows the checkpoint by, such as "gpt2", or a folder on this computer. Only
    safetensors are read: loading them runs no code.

    Raises: ImportError without ``transformers``; OSError where the checkpoint can be read neither here nor over
        the network; ValueError where it has no such layer, or attention that is not known here.
    Taught in: chapter 07.
    """
    try:
        auto = import_module("transformers").AutoModel
    except ImportError as error:
        raise ImportError(f"trained checkpoints are read by the library transformers: {INSTALL}") from error
    try:
        model = auto.from_pretrained(name, use_safetensors=True)
    except OSError as error:
        raise OSError(
            f"the checkpoint {str(name)!r} could not be loaded. transformers says: {str(error).splitlines()[0]} "
            "Check the name and the connection, or give the folder of a checkpoint in safetensors that you have. "
            "Without either, every module of transformers with random weights converts just as well: "
            "mha.interop.from_transformers(module)"
        ) from error
    modules = [module for module in model.modules() if type(module).__name__ in PLANS]
    if not modules:
        found = sorted({type(m).__name__ for m in model.modules() if "Attention" in type(m).__name__})
        raise ValueError(f"{str(name)!r} has attention of class {found}; known here are {sorted(PLANS)}")
    if not 0 <= layer < len(modules):
        raise ValueError(f"layer = {layer}: {str(name)!r} has {len(modules)} layers, numbered 0 to {len(modules) - 1}")
    return from_transformers(modules[layer])
