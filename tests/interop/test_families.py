"""Attention known by its parts: models of other families give the same numbers, or are refused by name."""

import copy

import pytest
import torch
from test_swap import ENDS, SIZES, close, made, swapped, words
from torch import nn

import mha
from mha.interop import from_transformers, swap, unswap
from mha.interop.hugging_face import transformers_plan
from mha.interop.swapping import attention_places

transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")

LLAMA = {**SIZES, "num_hidden_layers": 2, "intermediate_size": 32, "num_key_value_heads": 2, **ENDS}
BERT = {**SIZES, "num_hidden_layers": 2, "intermediate_size": 32}
LOCAL = {"head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
BART = {
    "vocab_size": 50, "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 2,
    **ENDS, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "vocab_size": 50, "d_model": 24, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4, "eos_token_id": None,
    "pad_token_id": 0, "decoder_start_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_local_experts": 2, "num_experts": 2, "moe_intermediate_size": 16, "num_experts_per_tok": 1}
FAMILIES = {
    "RoBERTa": ("RobertaModel", BERT),
    "ELECTRA": ("ElectraModel", {**BERT, "embedding_size": 12}),
    "DistilBERT": ("DistilBertModel", {"vocab_size": 50, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 32}),
    "MPNet": ("MPNetModel", BERT),
    "ModernBERT": ("ModernBertModel", {**BERT, **LOCAL, "sliding_window": 2, "pad_token_id": 0, "head_dim": 6}),
    "BART": ("BartForConditionalGeneration", BART),
    "T5": ("T5ForConditionalGeneration", T5),
    "OPT": (
        "OPTForCausalLM",
        {**SIZES, "num_hidden_layers": 2, "ffn_dim": 32, "word_embed_proj_dim": 24, "bos_token_id": 1, **ENDS},
    ),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {**LLAMA, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "Falcon, groups": ("FalconForCausalLM", {**LLAMA, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "Falcon, one key": ("FalconForCausalLM", {**LLAMA, "multi_query": True, "new_decoder_architecture": False}),
    "Falcon, all keys": (
        "FalconForCausalLM",
        {**LLAMA, "multi_query": False, "new_decoder_architecture": False, "bias": True},
    ),
    "Phi": ("PhiForCausalLM", {**LLAMA, "hidden_size": 32}),
    "Phi-3": ("Phi3ForCausalLM", {**LLAMA, "resid_pdrop": 0.1}),
    "StarCoder2": ("Starcoder2ForCausalLM", {**LLAMA, "residual_dropout": 0.1}),
    "Gemma": ("GemmaForCausalLM", {**LLAMA, "head_dim": 8}),
    "Gemma 2": ("Gemma2ForCausalLM", {**LLAMA, **LOCAL, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 5}),
    "Gemma 3": ("Gemma3ForCausalLM", {**LLAMA, **LOCAL}),
    "OLMo": ("OlmoForCausalLM", LLAMA),
    "OLMo 2": ("Olmo2ForCausalLM", LLAMA),
    "Cohere": ("CohereForCausalLM", LLAMA),
    "Cohere 2": ("Cohere2ForCausalLM", {**LLAMA, **LOCAL}),
    "Granite": ("GraniteForCausalLM", {**LLAMA, "attention_multiplier": 0.3}),
    "GLM": ("GlmForCausalLM", {**LLAMA, "head_dim": 8}),
    "SmolLM3": ("SmolLM3ForCausalLM", {**LLAMA, "no_rope_layers": [1, 0]}),
    "Mixtral": ("MixtralForCausalLM", {**LLAMA, **EXPERTS}),
    "Qwen3, experts": ("Qwen3MoeForCausalLM", {**LLAMA, **EXPERTS, "head_dim": 8}),
}
EAGER = {"MPNet", "Gemma 2"}
WHOLE = {"OLMo 2"}  # their norms take all heads together
WRITERS = [name for name, (kind, _) in FAMILIES.items() if "LM" in kind or "Generation" in kind]


def family(name, kernel="sdpa", **more):
    """A model of a family with random weights, small enough for a test."""
    kind, options = FAMILIES[name]
    kind = getattr(transformers, kind)
    kernel = "eager" if name in EAGER else kernel
    model = kind(kind.config_class(attn_implementation=kernel, **{**options, **more})).eval().float()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, 0, 0.15, generator=generator)
    return model


def all_swapped(model):
    """A copy of a model with layers of ours in all places."""
    ours = copy.deepcopy(model)
    for number in range(len(attention_places(ours))):
        swap(ours, number)
    return ours


def answer(model, ids, real):
    """What a model says, without the padding."""
    more = {"decoder_input_ids": ids[:, :6]} if model.config.is_encoder_decoder else {}
    out = model(ids, attention_mask=real, **more)[0]
    return out if more else out[real.bool()]


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_every_family_says_the_same(name, kernel):
    theirs, (ids, real) = family(name, kernel), words()
    ours = all_swapped(theirs)
    close(answer(ours, ids, real), answer(theirs, ids, real), 2e-6)
    close(answer(ours, ids, real.flip(1)), answer(theirs, ids, real.flip(1)), 2e-6)


@pytest.mark.parametrize("name", WRITERS)
def test_every_family_writes_the_same(name):
    theirs, (ids, real) = family(name), words(2)
    how = {"max_new_tokens": 4, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    found, wanted = (model.generate(ids, attention_mask=real, **how) for model in (all_swapped(theirs), theirs))
    assert torch.equal(found.sequences, wanted.sequences)
    for one, other in zip(found.scores, wanted.scores, strict=True):
        close(one, other, 1e-5)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in WHOLE])
@torch.no_grad()
def test_heads_of_every_family_can_be_cut_out(name):
    model, (ids, real) = family(name), words(3)
    layer = swap(model)
    group = layer.heads // layer.kv_heads
    stay = range(group) if layer.kv_heads > 1 else range(layer.heads)
    with mha.edit(layer, heads=lambda z: z * torch.tensor([h in stay for h in range(layer.heads)])[:, None, None]):
        wanted = answer(model, ids, real)
    swap(model, 0, layer.take_heads(stay))
    close(answer(model, ids, real), wanted, 2e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gets_its_modules_back(name):
    model, (ids, real) = family(name), words(4)
    names = [name for name, _ in model.named_parameters()]
    with torch.no_grad():
        for weight in swap(model).parameters():
            weight.add_(0.02)
        after = answer(model, ids, real)
        assert [name for name, _ in unswap(model).named_parameters()] == names
        close(answer(model, ids, real), after, 2e-6)


@pytest.mark.parametrize("name", ["T5", "BART", "Gemma 2", "DistilBERT", "MPNet"])
def test_gradients_of_every_family_are_theirs(name):
    theirs, (ids, real) = family(name), words(5)
    ours = all_swapped(theirs)
    for model in (ours, theirs):
        answer(model, ids, real).square().mean().backward()
    unswap(ours)  # the modules come back; gradients are compared where parameters never moved
    mine = dict(ours.named_parameters())
    shared = [n for n, w in theirs.named_parameters() if w.grad is not None and mine[n].grad is not None]
    assert len(shared) > 4
    for each in shared:
        close(mine[each].grad, dict(theirs.named_parameters())[each].grad, 2e-5, tiny=1e-6)


def test_heads_with_one_norm_for_all_are_refused_by_name():
    with pytest.raises(ValueError, match=r"norms of this layer take all heads together.*mask_heads"):
        swap(family("OLMo 2")).take_heads([0, 1])


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("OLMo", {"clip_qkv": 0.5}, "differs by"),
        ("Cohere", {"use_qk_norm": True}, "which a layer here has no place for"),
        ("Phi", {"qk_layernorm": True}, "which a layer here has no place for|differs by"),
        ("Falcon, groups", {"hidden_dropout": 0.1}, "with dropout of the output in training"),
    ],
)
def test_what_a_layer_cannot_do_is_refused_with_the_way_out(name, options, reason):
    with pytest.raises(ValueError, match=rf"(?s)({reason}).*output_attentions=True"):
        swap(family(name, **options))


def test_attention_that_bends_far_away_is_refused():
    """Ministral 3 scales queries by their position, from a length on that no short trial reaches."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1}
    rope["original_max_position_embeddings"] = 4096
    kind = transformers.Ministral3ForCausalLM
    model = kind(kind.config_class(**LLAMA, rope_parameters=rope)).eval()
    with pytest.raises(ValueError, match="from position 100,000 on a layer with its parameters differs"):
        swap(model)


def test_an_argument_that_a_layer_does_not_read_is_refused():
    model = family("OPT")
    swap(model)
    place = model.model.decoder.layers[0].self_attn
    with pytest.raises(ValueError, match=r"\['alibi'\] may change what the heads compute"):
        place(torch.randn(1, 3, 24, dtype=torch.float32), alibi=torch.zeros(1))
    with pytest.raises(ValueError, match="generate_batch keeps keys and values in pages"):
        place(torch.randn(1, 3, 24, dtype=torch.float32), cache="pages")


def test_a_bias_that_the_model_makes_needs_the_model():
    place = attention_places(family("MPNet"))[0][1]
    with pytest.raises(ValueError, match=r"(?s)a bias for each pair of positions.*mha\.interop\.swap"):
        from_transformers(place)
    layer = swap(family("MPNet"))
    with pytest.raises(ValueError, match="call that model"):
        layer(torch.randn(1, 3, 24, dtype=torch.float32))


def test_dropout_is_known_where_it_acts():
    assert transformers_plan(attention_places(family("BART", attention_dropout=0.2))[0][1]).sizes["dropout"] == 0.2
    torch.manual_seed(0)
    theirs = family("StarCoder2").train()
    ours = all_swapped(theirs)
    ids, real = words(6)
    found = [torch.stack([answer(m, ids, real) for _ in range(300)]).detach().std(0).mean() for m in (ours, theirs)]
    assert float(found[0] / found[1]) == pytest.approx(1, abs=0.05)


def test_a_model_of_two_towers_says_which_it_leaves_alone():
    config = transformers.XLNetConfig(vocab_size=50, d_model=24, n_layer=1, n_head=4, d_inner=32)

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.text, self.other = family("GPT-NeoX"), transformers.XLNetModel(config)

    with pytest.raises(
        ValueError, match=r"layer = 9: Towers has 2 attention layers .*XLNetRelativeAttention are left alone"
    ):
        swap(Towers(), 9)


def test_a_known_class_needs_no_trial():
    assert swapped(made("LlamaForCausalLM")).model.layers[0].self_attn.answers == 2
