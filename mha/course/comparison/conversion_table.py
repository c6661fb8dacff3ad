"""The table of what converts: library, class, options, and the largest error, measured when it is made.

:Taught in: in_the_transformer.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from mha.checks import checked
from mha.functional.masks import causal_mask, combine, padding_mask, to_additive
from mha.interop.hugging_face import from_transformers, to_transformers
from mha.interop.pytorch import from_torch, to_torch
from mha.interop.rotary import relayout
from mha.interop.seq_first import SeqFirst
from mha.layers.multi_head import Heads

B, N, J, D, HEADS = 3, 5, 7, 24, 6
PIECES = ((0, 3), (3, 4), (4, N))  # a text that comes in three pieces, for a cache


@dataclass(frozen=True)
class Case:
    """One line of the table before it is measured: what it is called, and what to do."""

    library: str
    name: str
    options: str
    make: Callable[[], nn.Module]
    read: Callable[[Any], nn.Module]
    write: Callable[[Any, nn.Module], nn.Module]
    ours: Callable[[nn.Module], Tensor]
    theirs: Callable[[nn.Module], Tensor]
    cached: Callable[[Any, nn.Module], tuple[Tensor, Tensor]] | None = None


@checked
def noise(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers, the same ones at every call."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, MEMORY = noise(B, N, D), noise(B, J, D, seed=1)


def torch_cases() -> Iterator[Case]:
    """List the cases of ``nn.MultiheadAttention``."""
    x, memory, other, padding = X, MEMORY, noise(B, J, 10, seed=2), padding_mask([2, 5, 4], N)

    def case(options: str, inputs: tuple, mask: Tensor | None = None, hide: dict | None = None, **made) -> Case:
        make = partial(nn.MultiheadAttention, D, HEADS, batch_first=True, **made)
        keys = inputs if len(inputs) == 3 else (inputs[0], inputs[-1], inputs[-1])
        return Case(
            "torch", "nn.MultiheadAttention", options, make, from_torch, lambda layer, _: to_torch(layer),
            lambda layer: layer(*inputs, mask=mask), lambda module: module(*keys, **(hide or {}))[0],
        )  # fmt: skip

    causal = {"attn_mask": ~causal_mask(N)}
    yield case("packed", (x,))
    yield case("packed, no bias, causal", (x,), causal_mask(N), causal, bias=False)
    padded = {"key_padding_mask": ~padding[:, 0, 0]}
    yield case("packed, padding", (x,), padding, padded)
    yield case("packed, padding and causal", (x,), combine(padding, causal_mask(N)), padded | causal)
    yield case("packed, cross-attention", (x, memory))
    yield case("separate: kdim 10, vdim 24, cross-attention", (x, other, memory), kdim=10)
    yield case("separate: kdim 10, vdim 10, no bias", (x, other), kdim=10, vdim=10, bias=False)
    yield seq_first_case()


def seq_first_case() -> Case:
    """Return the case of a sequence-first module behind :class:`SeqFirst`, with a mask (query, key, batch)."""
    x, memory, mask = noise(N, B, D), noise(J, B, D, seed=1), noise(N, J, B, seed=3) > -0.5

    def read(module: nn.MultiheadAttention) -> nn.Module:
        module.batch_first = True
        wrapped = SeqFirst(from_torch(module))
        module.batch_first = False
        return wrapped

    def write(wrapped: SeqFirst, _module: nn.Module) -> nn.Module:
        module = to_torch(wrapped.layer)
        module.batch_first = False
        return module

    hidden = ~mask.permute(2, 0, 1).repeat_interleave(HEADS, 0)
    return Case(
        "torch", "nn.MultiheadAttention", "sequence first, mask (query, key, batch)",
        partial(nn.MultiheadAttention, D, HEADS), read, write,
        lambda wrapped: wrapped(x, memory, mask=mask), lambda module: module(x, memory, memory, attn_mask=hidden)[0],
    )  # fmt: skip


def transformers_cases() -> Iterator[Case]:
    """List the cases of the library ``transformers``."""
    yield from albert_cases()
    yield from bert_cases()
    yield from deepseek_cases()
    yield from gpt2_cases()
    yield from llama_cases()
    yield from released_cases()
    yield from vit_cases()
    yield from whisper_cases()


def albert_cases() -> Iterator[Case]:
    """List the cases of ``AlbertAttention``, compared where its output map ends."""
    padding = padding_mask([2, 5, 4], N)
    albert = import_module("transformers.models.albert.modeling_albert")
    config = import_module("transformers").AlbertConfig(
        hidden_size=D, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, attn_implementation="eager"
    )
    for options, mask in (("self-attention", None), ("padding", padding)):
        yield _case(
            "AlbertAttention", options, partial(albert.AlbertAttention, config),
            lambda layer, mask=mask: layer(X, mask=mask),
            lambda module, mask=mask: _before_norm(module, module.dense, attention_mask=_added(mask)),
        )  # fmt: skip


def bert_cases() -> Iterator[Case]:
    """List the cases of ``BertAttention``, compared where its output map ends."""
    padding = padding_mask([2, 5, 4], N)
    bert = import_module("transformers.models.bert.modeling_bert")
    config = import_module("transformers").BertConfig(
        hidden_size=D, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0, is_decoder=True,
        attn_implementation="eager",
    )  # fmt: skip

    def case(options: str, mask: Tensor | None = None, cross: bool = False, causal: bool = False) -> Case:
        make = partial(bert.BertAttention, config, layer_idx=0, **({"is_cross_attention": True} if cross else {}))
        how = {"encoder_hidden_states": MEMORY} if cross else {"attention_mask": _added(mask)}
        return _case(
            "BertAttention", options, make,
            lambda layer: layer(X, MEMORY if cross else None, mask=mask),
            lambda module: _before_norm(module, module.output.dense, **how),
            cached=_in_pieces(mask, lambda m, x, **how: _before_norm(m, m.output.dense, x, **how)) if causal else None,
        )  # fmt: skip

    yield case("self-attention")
    yield case("padding", padding)
    yield case("padding and causal", combine(padding, causal_mask(N)), causal=True)
    yield case("cross-attention", cross=True)


def deepseek_cases() -> Iterator[Case]:
    """List the cases of DeepSeek's latent attention, whose norms compute in float32: they agree so far."""
    padding = padding_mask([2, 5, 4], N)

    def case(version: int, options: str, mask: Tensor | None = None, **made) -> Case:
        theirs = import_module(f"transformers.models.deepseek_v{version}.modeling_deepseek_v{version}")
        config = getattr(import_module("transformers"), f"DeepseekV{version}Config")(
            hidden_size=D, num_attention_heads=HEADS, num_key_value_heads=HEADS, kv_lora_rank=10, qk_rope_head_dim=4,
            qk_nope_head_dim=6, v_head_dim=6, attn_implementation="sdpa", **made,
        )  # fmt: skip
        mask, name = combine(mask, causal_mask(N)), f"DeepseekV{version}Attention"
        angles = getattr(theirs, f"DeepseekV{version}RotaryEmbedding")(config)(X, torch.arange(N)[None])
        return _case(
            name, options, partial(getattr(theirs, name), config, layer_idx=0), lambda layer: layer(X, mask=mask),
            lambda module: module(X, attention_mask=_added(mask), position_embeddings=angles)[0],
            cached=_in_pieces(mask, angles=angles, config=config if version == 32 else None),
        )  # fmt: skip

    yield case(2, "latent of 10, 4 rotary, causal", q_lora_rank=None)
    yield case(2, "compressed queries, padding and causal", padding, q_lora_rank=8)
    yield case(3, "latent of 10, 4 rotary, causal", q_lora_rank=None)
    yield case(3, "compressed queries, padding and causal", padding, q_lora_rank=8)
    yield case(3, "pairs in halves, causal", q_lora_rank=8, rope_interleave=False)
    index: dict[str, Any] = {"q_lora_rank": 8, "index_n_heads": 8, "index_head_dim": 10, "index_topk": 2}
    yield case(32, "index chooses 2 of 5, causal", **index)
    yield case(32, "index chooses 2 of 5, padding and causal", padding, **index)


def gpt2_cases() -> Iterator[Case]:
    """List the cases of ``GPT2Attention``, whose three matrices are packed and transposed."""
    padding = padding_mask([2, 5, 4], N)
    gpt2 = import_module("transformers.models.gpt2.modeling_gpt2")
    config = import_module("transformers").GPT2Config(
        n_embd=D, n_head=HEADS, attn_pdrop=0.0, attn_implementation="eager"
    )

    def case(options: str, mask: Tensor | None, cross: bool = False) -> Case:
        make = partial(gpt2.GPT2Attention, config, is_cross_attention=cross, layer_idx=0)
        how = {"encoder_hidden_states": MEMORY} if cross else {"attention_mask": _added(mask)}
        return _case(
            "GPT2Attention", options, make,
            lambda layer: layer(X, MEMORY if cross else None, mask=mask), lambda module: module(X, **how)[0],
            cached=None if cross else _in_pieces(mask),
        )  # fmt: skip

    yield case("Conv1D packed, causal", causal_mask(N))
    yield case("Conv1D packed, padding and causal", combine(padding, causal_mask(N)))
    yield case("Conv1D, cross-attention", None, cross=True)


def llama_cases() -> Iterator[Case]:
    """List the cases of ``LlamaAttention``: shared KV heads, rotary positions."""
    padding = padding_mask([2, 5, 4], N)
    llama = import_module("transformers.models.llama.modeling_llama")
    make_config = import_module("transformers").LlamaConfig

    def case(options: str, mask: Tensor | None = None, layout: str = "half", **made) -> Case:
        config = make_config(hidden_size=D, num_attention_heads=HEADS, attn_implementation="sdpa", **made)
        mask = combine(mask, causal_mask(N))
        angles = llama.LlamaRotaryEmbedding(config)(X, torch.arange(N)[None])
        how = {"position_embeddings": angles}
        return _case(
            "LlamaAttention", options, partial(llama.LlamaAttention, config, layer_idx=0),
            lambda layer: layer(X, mask=mask), lambda module: module(X, attention_mask=_added(mask), **how)[0], layout,
            _in_pieces(mask, angles=angles),
        )  # fmt: skip

    yield case("rotary, causal")
    yield case("rotary, 3 KV heads, padding and causal", padding, num_key_value_heads=3)
    rope = {"rope_type": "default", "rope_theta": 5e5}
    yield case("rotary, 1 KV head, base 500000", num_key_value_heads=1, rope_parameters=rope)
    yield case("rotary, 2 KV heads, biases, head width 8", num_key_value_heads=2, attention_bias=True, head_dim=8)
    yield case("rotary, 2 KV heads, rows interleaved", layout="interleaved", num_key_value_heads=2)


def released_cases() -> Iterator[Case]:
    """List the cases of Llama's kin: windows, biases, norms, a gate, sinks, and positions for long texts."""
    padding = padding_mask([2, 5, 4], N)
    near = torch.ones(N, N, dtype=torch.bool).triu(-1)  # a window of two tokens, together with the causal mask

    def case(family: str, options: str, mask: Tensor | None = None, kernel: str = "sdpa", **made) -> Case:
        file = {"GptOss": "gpt_oss", "Qwen3Next": "qwen3_next"}.get(family, family.lower())
        theirs = import_module(f"transformers.models.{file}.modeling_{file}")
        config = getattr(import_module("transformers"), f"{family}Config")(
            hidden_size=D, num_attention_heads=HEADS, attn_implementation=kernel, **made
        )
        mask = combine(mask, causal_mask(N))
        angles = getattr(theirs, f"{family}RotaryEmbedding")(config)(X, torch.arange(N)[None])
        how = {"position_embeddings": angles}
        return _case(
            f"{family}Attention", options, partial(getattr(theirs, f"{family}Attention"), config, layer_idx=0),
            lambda layer: layer(X, mask=mask), lambda module: module(X, attention_mask=_added(mask), **how)[0],
            cached=_in_pieces(mask, angles=angles),
        )  # fmt: skip

    yield case("Mistral", "rotary, 2 KV heads, window of 2 tokens", near, num_key_value_heads=2, sliding_window=2)
    yield case("Qwen2", "rotary, 3 KV heads, padding and causal", padding, num_key_value_heads=3)
    yield case("Qwen3", "norms, 2 KV heads, causal", num_key_value_heads=2, head_dim=8)
    yield case(
        "Qwen3", "norms, biases, padding and causal", padding, num_key_value_heads=6, attention_bias=True, head_dim=6
    )
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    yield case(
        "Qwen3Next", "norms, gate, a quarter rotary", padding, num_key_value_heads=2, head_dim=16, rope_parameters=rope
    )
    yield case("GptOss", "sinks, biases, YaRN, 2 KV heads", padding, "eager", num_key_value_heads=2, head_dim=8)
    yield case("GptOss", "sinks, YaRN, window of 2 tokens", near, "eager", num_key_value_heads=3, head_dim=16)
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 16}
    yield case("Llama", "rotary for long texts (llama3)", num_key_value_heads=2, rope_parameters=rope)


def vit_cases() -> Iterator[Case]:
    """List the cases of ``ViTAttention``, which reads the patches of a picture."""
    vit = import_module("transformers.models.vit.modeling_vit")
    for options, made in (("self-attention", {}), ("no biases but the last", {"qkv_bias": False})):
        config = import_module("transformers").ViTConfig(
            hidden_size=D, num_attention_heads=HEADS, attn_implementation="sdpa", **made
        )
        make = partial(vit.ViTAttention, config)
        yield _case("ViTAttention", options, make, lambda layer: layer(X), lambda module: module(X)[0])


def whisper_cases() -> Iterator[Case]:
    """List the cases of ``WhisperAttention``, whose keys have no bias."""
    whisper, padding = import_module("transformers.models.whisper.modeling_whisper"), padding_mask([2, 5, 4], N)
    config = import_module("transformers").WhisperConfig(d_model=D, attn_implementation="sdpa")
    make = partial(whisper.WhisperAttention, D, HEADS, layer_idx=0, config=config)
    mask = combine(padding, causal_mask(N))
    yield _case(
        "WhisperAttention", "padding and causal", make, lambda layer: layer(X, mask=mask),
        lambda module: module(X, attention_mask=_added(mask))[0], cached=_in_pieces(mask),
    )  # fmt: skip
    yield _case(
        "WhisperAttention", "cross-attention", make, lambda layer: layer(X, MEMORY),
        lambda module: module(X, key_value_states=MEMORY)[0],
    )  # fmt: skip


def _case(
    name: str, options: str, make: Callable, ours: Callable, theirs: Callable, layout: str | None = None,
    cached: Callable | None = None,
) -> Case:  # fmt: skip
    """Fill in how ``transformers`` is read and written; with a ``layout`` our rows are kept in that order."""

    def read(module: nn.Module) -> nn.Module:
        with warnings.catch_warnings():  # the windows are longer than the texts of the table
            warnings.filterwarnings("ignore", message="the model of this")
            made = from_transformers(module)
        return made if layout is None else relayout(made, layout)

    def write(layer: Heads, module: nn.Module) -> nn.Module:
        return to_transformers(layer if layout is None else relayout(copy.deepcopy(layer), "half"), module)

    return Case("transformers", name, options, make, read, write, ours, theirs, cached)


def _in_pieces(mask: Tensor | None, call: Callable | None = None, angles: Any = (), config: Any = None) -> Callable:
    """Let a text come in pieces, behind our cache and behind theirs; ``call`` says how their module is called.

    A ``config`` tells theirs that it keeps more than keys and values.
    """
    how = {} if isinstance(angles, tuple) and not angles else {"position_embeddings": angles}

    def cached(layer: Any, module: nn.Module) -> tuple[Tensor, Tensor]:
        ours, theirs = layer.new_cache(), import_module("transformers").DynamicCache(config=config)
        found, wanted, hidden = [], [], _added(mask)
        for start, end in PIECES:
            rows = None if mask is None else mask.expand(B, 1, N, N)[:, :, start:end, :end]
            found.append(layer(X[:, start:end], mask=rows, cache=ours))
            told = {"attention_mask": None if hidden is None else hidden[:, :, start:end, :end]}
            told |= {name: _cut(waves, start, end) for name, waves in how.items()} | {"past_key_values": theirs}
            piece = X[:, start:end].contiguous()  # their Conv1D takes a view of it
            wanted.append(module(piece, **told)[0] if call is None else call(module, piece, **told))
        return torch.cat(found, 1), torch.cat(wanted, 1)

    return cached


def _cut(angles: Any, start: int, end: int) -> Any:
    """Keep the angles of some tokens: a pair (cos, sin), or complex numbers."""
    return angles[:, start:end] if isinstance(angles, Tensor) else tuple(wave[:, start:end] for wave in angles)


def _added(mask: Tensor | None) -> Tensor | None:
    """Write a mask as numbers to add, with all its axes, as ``transformers`` wants it."""
    return None if mask is None else to_additive(mask, torch.float64).expand(B, 1, N, N)


def _before_norm(module: Any, dense: Any, x: Tensor = X, **how) -> Tensor:
    """Return what attention says where its output map ends: before dropout, the sum with its input and the norm."""
    seen = []
    hook = dense.register_forward_hook(lambda _m, _i, output: seen.append(output))
    module(x, **how)
    hook.remove()
    return seen[0]


@dataclass(frozen=True)
class Row:
    """One line of the table: how far our numbers are from the library's, and whether weights come back unchanged.

    ``error`` is the largest difference of the two outputs, divided by the largest output, in float64, over both
    directions: their weights in our layer, and our weights in their module. ``gradient`` is the same for the gradients
    of all weights. ``cache`` is the same for a text that comes in three pieces, behind our cache and behind theirs;
    None where that was not compared: where their class has no cache, and where the setting is not causal.

    :Taught in: in_the_transformer.
    """

    library: str
    module: str
    options: str
    error: float
    round_trip: bool
    gradient: float
    cache: float | None = None

    def __str__(self) -> str:
        numbers = [below(number) for number in (self.error, self.gradient, self.cache)]
        same = "same bits" if self.round_trip else "CHANGED"
        return f"{self.library:<12} {self.module:<21} {self.options:<43} " + "".join(f"{n:<7}" for n in numbers) + same


LIMITS = (1e-12, 1e-6)  # the second one for classes that compute norms in float32, whatever the type of the weights


@checked
def below(error: float | None) -> str:
    """Say below which limit an error lies, ``"<1e-12"`` or ``"<1e-06"``; a larger one as it is, None as ``"–"``.

    :Taught in: in_the_transformer.
    """
    if error is None:
        return "–"
    return next((f"<{limit:.0e}" for limit in LIMITS if error < limit), f"{error:.0e}")


def interop_table() -> list[Row]:
    """Convert modules of every known class there and back, and measure the errors.

    The modules have random weights, so no network is needed. Without ``transformers`` the table holds torch only.

    :Taught in: in_the_transformer.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [_measured(case) for case in _cases()]


def _cases() -> Iterator[Case]:
    yield from torch_cases()
    if find_spec("transformers") is not None:
        with warnings.catch_warnings():  # in a notebook without ipywidgets, the progress bars that it imports complain
            warnings.simplefilter("ignore")
            import_module("tqdm.auto")
        yield from transformers_cases()


@torch.no_grad()
def _measured(case: Case) -> Row:
    """Read random weights, then write other random weights, and compare outputs both times."""
    module = _random(case.make())
    layer = case.read(module)
    error = _distance(case.ours(layer), case.theirs(module))
    new = _random(copy.deepcopy(layer))
    written = case.write(new, copy.deepcopy(module))
    error = max(error, _distance(case.ours(new), case.theirs(written)))
    before, after = new.state_dict(), case.read(written).state_dict()
    same = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    cache = None if case.cached is None else _distance(*case.cached(layer, module))
    return Row(case.library, case.name, case.options, error, same, _slopes(case, layer, module), cache)


@torch.enable_grad()
def _slopes(case: Case, layer: nn.Module, module: nn.Module) -> float:
    """Compare the gradients of all weights; theirs are read as if they were weights, so each stands where ours does."""
    for said in (case.ours(layer), case.theirs(module)):
        (said * noise(*said.shape, seed=4)).sum().backward()
    for weight in module.parameters():
        weight.data = torch.zeros_like(weight) if weight.grad is None else weight.grad
    wanted = dict(case.read(module).named_parameters())
    found = {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in layer.named_parameters()}
    return _distance(*(torch.cat([slopes[name].flatten() for name in wanted]) for slopes in (found, wanted)))


def _random(module: nn.Module) -> nn.Module:
    """Give every weight a random number, so that no bias of 0 hides a mistake."""
    module = module.double().eval()
    for weight in module.parameters():
        weight.copy_(0.3 * torch.randn_like(weight))
    return module


def _distance(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()
