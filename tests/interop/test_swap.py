"""A layer of ours in a model of transformers: the same logits, with padding, angles, caches and gradients."""

import copy

import pytest
import torch
from torch import nn

import mha
from mha.interop import from_transformers, swap, swapping, unswap
from mha.interop.swapping import Swapped

pytestmark = pytest.mark.filterwarnings("ignore:the model of this:UserWarning")  # its windows are given as masks

transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")

N = 9
SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50}
ENDS = {"eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}
LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 10, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6,
    "v_head_dim": 6, "first_k_dense_replace": 3, "moe_intermediate_size": 16, "n_routed_experts": 4, "n_group": 1,
    "topk_group": 1, "num_experts_per_tok": 2,
}  # fmt: skip
KINDS = {
    "BertModel": ("BertConfig", {}),
    "BertLMHeadModel": ("BertConfig", {"is_decoder": True, **ENDS}),
    "AlbertModel": ("AlbertConfig", {"embedding_size": 12}),
    "GPT2LMHeadModel": ("GPT2Config", ENDS),
    "LlamaForCausalLM": ("LlamaConfig", {"num_key_value_heads": 2, **ENDS}),
    "MistralForCausalLM": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": 4, **ENDS}),
    "Qwen2ForCausalLM": ("Qwen2Config", {"num_key_value_heads": 2, **ENDS}),
    "Qwen3ForCausalLM": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 8, **ENDS}),
    "GptOssForCausalLM": (
        "GptOssConfig",
        {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "num_local_experts": 4, **ENDS},
    ),
    "DeepseekV2ForCausalLM": ("DeepseekV2Config", LATENT | ENDS),
    "DeepseekV3ForCausalLM": ("DeepseekV3Config", LATENT | ENDS),
}
WRITERS = [name for name in KINDS if "LM" in name]
EAGER = {"GptOssForCausalLM"}  # sinks are not known to torch's fused kernel


def made(kind, kernel="sdpa", seed=0, **more):
    """A model of a class of theirs with random weights, small enough for a test."""
    name, options = KINDS[kind]
    kernel = "eager" if kind in EAGER else kernel
    options = {**SIZES, "intermediate_size": 32, **options, **more}
    if kind == "GPT2LMHeadModel":
        options.pop("intermediate_size")
    config = getattr(transformers, name)(attn_implementation=kernel, **options)
    model = getattr(transformers, kind)(config).eval().float()
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        nn.init.normal_(weight, 0, 0.15, generator=generator)
    return model


def swapped(model):
    """A copy of a model, with layers of ours in all places."""
    ours = copy.deepcopy(model)
    for layer in range(1 if "Albert" in type(model).__name__ else 3):
        swap(ours, layer)
    return ours


def words(seed=0, left=True):
    """Token numbers of three texts, and a mask that hides the padding of two."""
    ids = torch.randint(1, 50, (3, N), generator=torch.Generator().manual_seed(seed))
    real = torch.ones(3, N, dtype=torch.long)
    if left:
        real[0, :4], real[2, :1] = 0, 0
    else:
        real[0, 5:], real[1, 8:] = 0, 0
    return ids, real


def close(ours, theirs, limit=1e-6, *, tiny=0.0):
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= limit * theirs.abs().max() + tiny


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_model_says_the_same(kind, kernel):
    theirs = made(kind, kernel)
    ours, (ids, real) = swapped(theirs), words(left=kind in WRITERS)
    assert sum(isinstance(module, Swapped) for module in ours.modules()) == (1 if kind == "AlbertModel" else 3)
    close(ours(ids)[0], theirs(ids)[0])
    seen = real.bool()
    close(ours(ids, attention_mask=real)[0][seen], theirs(ids, attention_mask=real)[0][seen])


@pytest.mark.parametrize("kind", ["BertModel", "AlbertModel", "GPT2LMHeadModel"])
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@torch.no_grad()
def test_in_float64_to_the_twelfth_digit(kind, kernel):
    theirs = made(kind, kernel, seed=1).double()
    ours, (ids, _real) = swapped(theirs), words(1)
    close(ours(ids)[0], theirs(ids)[0], 1e-12)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("room", [None, "static"])
def test_it_writes_the_same_words_behind_their_cache(kind, room):
    theirs = made(kind, seed=2)
    ours, (ids, real) = swapped(theirs), words(2)
    how = {"max_new_tokens": 5, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    found, wanted = (
        model.generate(ids, attention_mask=real, cache_implementation=room, **how) for model in (ours, theirs)
    )
    assert torch.equal(found.sequences, wanted.sequences)
    for one, other in zip(found.scores, wanted.scores, strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "LlamaForCausalLM", "DeepseekV3ForCausalLM"])
@torch.no_grad()
def test_a_text_may_come_in_chunks_of_several_words(kind):
    theirs = made(kind, seed=3)
    ours, (ids, _real) = swapped(theirs), words(3)
    whole, cache, parts = theirs(ids).logits, transformers.DynamicCache(config=theirs.config), []
    for start, end in ((0, 4), (4, 7), (7, N)):
        parts.append(ours(ids[:, start:end], past_key_values=cache).logits)
    close(torch.cat(parts, 1), whole)


def whisper():
    """A model that hears 24 moments of sound and writes words: 2 + 2 layers, random weights."""
    sizes = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 50}
    sizes |= {"decoder_attention_heads": 4, "num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 20}
    sizes |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 1, **ENDS}
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**sizes)).eval().float()
    for weight in model.parameters():
        nn.init.normal_(weight, 0, 0.15)
    return model


def vit(kernel="sdpa"):
    """A model that sees pictures of 16 times 16 points: 2 layers, random weights."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, attn_implementation=kernel)
    return transformers.ViTModel(config).eval().float()


@torch.no_grad()
def test_whisper_hears_the_same_and_writes_the_same():
    theirs = whisper()
    ours = copy.deepcopy(theirs)
    for place in range(6):  # two of the encoder, and of the decoder two of its words and two across
        swap(ours, place)
    assert sum(isinstance(module, Swapped) for module in ours.modules()) == 6
    sound, ids = torch.randn(3, 8, 24, dtype=torch.float32), words()[0]
    close(ours(sound, decoder_input_ids=ids).logits, theirs(sound, decoder_input_ids=ids).logits)
    cache = ours(sound, decoder_input_ids=ids[:, :4]).past_key_values
    wanted = theirs(sound, decoder_input_ids=ids).logits[:, 4:]
    ours.model.encoder = None  # its words are in the cache
    close(
        ours(
            encoder_outputs=(torch.zeros(3, 12, 24, dtype=torch.float32),),
            decoder_input_ids=ids[:, 4:],
            past_key_values=cache,
        ).logits,
        wanted,
    )


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@torch.no_grad()
def test_vit_sees_the_same(kernel):
    theirs = vit(kernel)
    ours, picture = copy.deepcopy(theirs), torch.randn(2, 3, 16, 16, dtype=torch.float32)
    swap(ours, 0)
    swap(ours, 1)
    close(ours(picture)[0], theirs(picture)[0])
    for model in (ours, theirs):
        model.double()
    # in its eager kernel the softmax of ViT is in float32, whatever the type of the parameters: 7e-9 apart
    close(ours(picture.double())[0], theirs(picture.double())[0], 1e-12 if kernel == "sdpa" else 1e-6)


@torch.no_grad()
def test_qwen3_next_says_the_same_with_its_gated_layer_swapped():
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    config = transformers.Qwen3NextConfig(
        **SIZES | {"num_hidden_layers": 4}, num_key_value_heads=2, head_dim=16, rope_parameters=rope, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16, intermediate_size=32,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, **ENDS,
    )  # fmt: skip
    theirs = transformers.Qwen3NextForCausalLM(config).eval().float()
    ours, (ids, real) = copy.deepcopy(theirs), words()
    layer = swap(ours)
    assert (layer.gated, layer.norm_offset, layer.positions.rotated) == (True, 1.0, 4)
    close(ours(ids).logits, theirs(ids).logits)
    how = {"attention_mask": real, "max_new_tokens": 4, "do_sample": False}
    assert torch.equal(ours.generate(ids, **how), theirs.generate(ids, **how))


@torch.no_grad()
def test_their_cache_holds_what_it_held():
    theirs = made("LlamaForCausalLM", seed=4)
    ours, (ids, _real) = swapped(theirs), words(4)
    found, wanted = ours(ids).past_key_values, theirs(ids).past_key_values
    for one, other in zip(found.layers, wanted.layers, strict=True):
        assert one.keys.shape == (3, 4 // 2, N, 6)
        close(one.keys, other.keys)
        close(one.values, other.values)


@torch.no_grad()
def test_the_angles_are_the_models():
    theirs, (ids, _real) = made("LlamaForCausalLM", seed=5), words(5)
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 9, 30]]).expand(3, -1)
    close(swapped(theirs)(ids, position_ids=places).logits, theirs(ids, position_ids=places).logits)


@pytest.mark.parametrize("kind", ["BertModel", "AlbertModel", "GPT2LMHeadModel", "LlamaForCausalLM"])
def test_gradients_are_theirs(kind):
    theirs, (ids, _real) = made(kind, seed=6).double(), words(6)
    ours = copy.deepcopy(theirs)
    layer = swap(ours)
    for model in (theirs, ours):
        (model(ids)[0] ** 2).mean().backward()
    names = ("BertAttention", "AlbertAttention", "GPT2Attention", "LlamaAttention")
    slopes_are_theirs(layer, next(m for m in theirs.modules() if type(m).__name__ in names))


def slopes_are_theirs(layer, place):
    """Compare the gradients of a layer of ours with those of their module, read as if they were weights."""
    for weight in place.parameters():
        weight.data = torch.zeros_like(weight) if weight.grad is None else weight.grad
    wanted = from_transformers(place)
    for name, weight in layer.named_parameters():
        close(weight.grad, wanted.get_parameter(name), 1e-12, tiny=1e-16)  # a key's bias has no slope: both round


def test_gradients_of_whisper_are_theirs_across_too():
    theirs = whisper().double()
    ours = copy.deepcopy(theirs)
    layers = [swap(ours, place) for place in range(6)]
    sound, ids = torch.randn(3, 8, 24), words()[0]
    for model in (theirs, ours):
        (model(sound, decoder_input_ids=ids).logits ** 2).mean().backward()
    places = [m for m in theirs.modules() if type(m).__name__ == "WhisperAttention"]
    for layer, place in zip(layers, places, strict=True):
        assert layer.W_k.weight.grad.abs().max() > 1e-6
        slopes_are_theirs(layer, place)


def test_gradients_of_vit_are_theirs():
    theirs = vit().double()
    ours, picture = copy.deepcopy(theirs), torch.randn(2, 3, 16, 16)
    layers = [swap(ours, place) for place in range(2)]
    for model in (theirs, ours):
        (model(picture)[0] ** 2 * torch.arange(24)).mean().backward()  # squares alone: a norm comes last
    places = [m for m in theirs.modules() if type(m).__name__ == "ViTAttention"]
    for layer, place in zip(layers, places, strict=True):
        assert layer.W_k.weight.grad.abs().max() > 1e-9
        slopes_are_theirs(layer, place)


def test_dropout_behind_attention_stays_theirs():
    theirs = made("GPT2LMHeadModel", resid_pdrop=0.5, attn_pdrop=0.0, embd_pdrop=0.0).train()
    ours, (ids, _real) = swapped(theirs), words()
    said = []
    for model in (ours, theirs):
        torch.manual_seed(0)
        said.append(model(ids).logits.detach())
    close(*said)


# ---- what one does with it ----


@torch.no_grad()
def test_it_can_be_watched_and_the_weights_are_theirs():
    theirs = made("GPT2LMHeadModel", "eager", seed=7)
    ours, (ids, _real) = swapped(theirs), words(7)
    wanted = theirs(ids, output_attentions=True).attentions
    with mha.watch(ours, "weights") as seen:
        ours(ids)
    for one, other in zip(seen.all("weights"), wanted, strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", ["BertModel", "AlbertModel", "LlamaForCausalLM"])
@pytest.mark.parametrize("before", [False, True])
@torch.no_grad()
def test_output_attentions_lists_every_layer(kind, before):
    theirs, (ids, _real) = made(kind, "eager", seed=8), words(8)
    wanted = theirs(ids, output_attentions=True).attentions if before else None  # hangs hooks into the model
    ours = swapped(theirs)
    wanted = theirs(ids, output_attentions=True).attentions if wanted is None else wanted
    found = ours(ids, output_attentions=True).attentions
    assert len(found) == 3
    for one, other in zip(found, wanted, strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", ["BertModel", "AlbertModel", "GPT2LMHeadModel", "LlamaForCausalLM"])
@torch.no_grad()
def test_heads_cut_out_are_heads_that_say_nothing(kind):
    model, (ids, _real) = made(kind, seed=9), words(9)
    layer = swap(model)
    keep = torch.tensor([1.0, 1, 0, 0], dtype=torch.float32)[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        wanted = model(ids)[0]
    before = sum(p.numel() for p in model.parameters())
    smaller = layer.take_heads([0, 1])
    assert swap(model, 0, smaller) is smaller
    close(model(ids)[0], wanted)
    assert sum(p.numel() for p in model.parameters()) == before - sum(p.numel() for p in layer.parameters()) + sum(
        p.numel() for p in smaller.parameters()
    )


def test_the_same_place_twice_gives_the_same_layer():
    model = made("GPT2LMHeadModel")
    assert swap(model, 1) is swap(model, 1)


def test_a_model_that_is_not_trained_stays_so():
    model = made("GPT2LMHeadModel").requires_grad_(False)
    layer = swap(model)
    assert not any(weight.requires_grad for weight in layer.parameters())
    assert not layer.training


@torch.no_grad()
def test_a_layer_made_elsewhere_may_stand_there():
    model, (ids, _real) = made("LlamaForCausalLM"), words()
    ours = mha.MultiHeadAttention(24, 2, d_head=6, bias=False, positions=mha.RotaryPositions()).float()
    assert swap(model, 2, ours) is ours
    assert model(ids).logits.isfinite().all()


# ---- what is refused, and then nothing has changed ----


@pytest.mark.parametrize(
    ("layer", "ours", "reason"),
    [
        (3, None, r"layer = 3: LlamaForCausalLM has 3 attention layers that are known here, numbered 0 to 2"),
        (-1, None, r"layer = -1"),
        (0, mha.MultiHeadAttention(12, 2), r"d_model, the width of the tokens: the layer has 12, the place 24"),
        (0, mha.MultiHeadAttention(24, 4), r"rotated, the channels .*: the layer has 0, the place 6"),
        (0, mha.MultiHeadAttention(24, 6, positions=mha.RotaryPositions()), r"the layer has 4, the place 6"),
        (0, mha.MultiHeadAttention(24, 4, positions=mha.RotaryPositions()).half(), r"dtype, .* of the parameters"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(layer, ours, reason):
    model = made("LlamaForCausalLM")
    before = str(model)
    with pytest.raises(ValueError, match=reason):
        swap(model, layer, ours)
    assert str(model) == before


@pytest.mark.parametrize("layer", [0.0, True, "0"])
def test_a_number_is_a_whole_number(layer):
    with pytest.raises(TypeError, match="layer"):
        swap(made("GPT2LMHeadModel"), layer)


def test_a_model_without_attention_that_is_known_is_refused():
    with pytest.raises(ValueError, match=r"Sequential has attention of class \[\].*output_attentions=True"):
        swap(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="as modules inside it"):
        swap(made("LlamaForCausalLM").model.layers[0].self_attn)


def test_kernels_without_masks_are_refused():
    model = made("LlamaForCausalLM")
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match=r"flex_attention.*set_attn_implementation\('sdpa'\)"):
        swap(model)
    model.config._attn_implementation = "sdpa"
    swap(model)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="attn_implementation"):
        model.model.layers[0].self_attn(torch.randn(1, 2, 24, dtype=torch.float32))


def test_masks_that_are_none_are_refused():
    model, x = made("LlamaForCausalLM"), torch.randn(1, 2, 24, dtype=torch.float32)
    swap(model)
    place = model.model.layers[0].self_attn
    angles = model.model.rotary_emb(x, torch.arange(2)[None])
    with pytest.raises(ValueError, match=r"attention_mask has shape \(1, 2\)"):
        place(x, position_embeddings=angles, attention_mask=torch.ones(1, 2))
    with pytest.raises(ValueError, match="add a bias to the scores"):
        place(x, position_embeddings=angles, attention_mask=torch.full((1, 1, 2, 2), -3.0))
    with pytest.raises(ValueError, match=r"\['position_bias'\] may change"):
        place(x, position_embeddings=angles, position_bias=torch.zeros(1))


def test_their_cache_has_no_place_for_what_others_keep():
    model, (ids, _real) = made("GPT2LMHeadModel"), words()
    swap(model, 0, mha.layers.LinearAttention(24, 4).float())
    with pytest.raises(ValueError, match="use_cache=False"):
        model(ids)


# ---- back, saved, frozen, hooked, adapted


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_gets_its_own_modules_back_with_what_ours_have_learned(kind, tmp_path):
    model, (ids, _real) = made(kind), words()
    before, names = model(ids)[0], [name for name, _ in model.named_parameters()]
    swap(model, 0)
    with torch.no_grad():
        for weight in swap(model, 0).parameters():
            weight.add_(0.01)
    after = model(ids)[0]
    assert not torch.allclose(before, after)
    assert unswap(model) is model
    assert [name for name, _ in model.named_parameters()] == names
    close(model(ids)[0], after, tiny=1e-6)
    model.save_pretrained(tmp_path)
    close(
        type(model).from_pretrained(tmp_path, attn_implementation=model.config._attn_implementation).eval()(ids)[0],
        after,
    )


def test_what_was_pruned_has_no_way_back_and_the_model_stays_as_it_is():
    model, (ids, _real) = made("LlamaForCausalLM"), words()
    swap(model, 0, swap(model, 0).take_heads([0, 1]))
    before = model(ids).logits
    with pytest.raises(ValueError, match=r"LlamaAttention does not fit:\n.*heads: the layer has 2"):
        unswap(model)
    assert torch.equal(model(ids).logits, before)


def test_a_model_is_swapped_for_a_while():
    model, (ids, _real) = made("GPT2LMHeadModel"), words()
    before, text = model(ids).logits, str(model)
    with swapping.swapped(model) as layers:
        assert len(layers) == 3
        with mha.watch(model, "weights") as seen:
            close(model(ids).logits, before)
        assert len(seen) == 3
        with pytest.raises(ValueError, match=r"call unswap\(model\) first"), swapping.swapped(model):
            pass
    assert str(model) == text
    with swapping.swapped(model, 1) as (one,):
        assert sum(isinstance(part, Swapped) for part in model.modules()) == 1
    assert isinstance(one, mha.MultiHeadAttention)


def test_a_swapped_model_can_be_saved_whole_and_copied(tmp_path):
    model, (ids, _real) = swapped(made("LlamaForCausalLM")), words()
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    other = copy.deepcopy(model)
    with torch.no_grad():
        swap(other, 0).W_v.weight.zero_()
    assert not torch.equal(other(ids).logits, model(ids).logits)
    assert torch.equal(unswap(loaded)(ids).logits, unswap(model)(ids).logits)


def test_a_checkpoint_that_could_not_be_loaded_is_warned_of(tmp_path):
    model = made("LlamaForCausalLM")
    swap(model, 1)
    with pytest.warns(UserWarning, match=r"layers\.1\.self_attn holds a layer of mha.*unswap\(model\) before"):
        model.save_pretrained(tmp_path)


def test_what_is_frozen_and_who_watches_stays():
    model, (ids, _real) = made("LlamaForCausalLM"), words()
    there, seen = model.model.layers[0].self_attn, []
    there.k_proj.requires_grad_(False)
    there.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
    ours = swap(model, 0)
    assert not ours.W_k.weight.requires_grad
    assert ours.W_q.weight.requires_grad
    model(ids)
    assert len(seen) == 1


class Adapter(nn.Module):
    """An adapter around a projection, as others write it."""

    def __init__(self, linear):
        super().__init__()
        self.linear, self.low = linear, nn.Linear(linear.in_features, 2, bias=False)
        self.high = nn.Linear(2, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.high(self.low(x))


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "BertModel"])
def test_adapters_of_a_model_take_part(kind):
    model, (ids, _real) = made(kind), words()
    part = model.model.layers[0].self_attn if kind == "LlamaForCausalLM" else model.encoder.layer[0].attention.self
    name = "q_proj" if kind == "LlamaForCausalLM" else "query"
    setattr(part, name, Adapter(getattr(part, name)).float())
    before = model(ids)[0]
    swap(model, 0)
    close(model(ids)[0], before, tiny=1e-5)


def test_an_adapter_of_gpt2_is_refused_with_the_way_out():
    model = made("GPT2LMHeadModel")
    attention = model.transformer.h[0].attn

    class Joined(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base_layer = base

        @property
        def weight(self):
            return self.base_layer.weight

        @property
        def bias(self):
            return self.base_layer.bias

        def forward(self, x):
            return 2 * self.base_layer(x)

    attention.c_attn = Joined(attention.c_attn)
    with pytest.raises(ValueError, match=r"GPT-2 is a Joined, not a Conv1D of its own.*merge_and_unload"):
        swap(model, 0)


ROPE = {"rope_theta": 10000.0}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
        {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_angles_are_those_of_the_models_code(kind, rope):
    model, (ids, _real) = made(kind, rope_parameters=ROPE | rope), words()
    before, attention = model(ids).logits, model.model.layers[0].self_attn
    close(swapped(model)(ids).logits, before)
    if rope["rope_type"] == "dynamic":
        with pytest.raises(ValueError, match=r"(?s)angles that depend on the length.*mha\.interop\.swap"):
            from_transformers(attention)
        return
    x = torch.randn(1, 7, 24, dtype=torch.float32)
    mask = torch.ones(7, 7).tril().bool()
    theirs = attention(
        x, position_embeddings=model.model.rotary_emb(x, torch.arange(7)[None]), attention_mask=mask[None, None]
    )
    close(from_transformers(attention)(x, mask=mask), theirs[0], tiny=1e-6)


def test_deepseeks_yarn_comes_along_with_its_scale():
    rope = ROPE | {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
    }  # fmt: skip
    model, (ids, _real) = made("DeepseekV3ForCausalLM", rope_parameters=rope), words()
    before = model(ids).logits
    assert swap(model, 0).scale == pytest.approx(model.model.layers[1].self_attn.scaling)
    close(model(ids).logits, before)


def test_a_scale_that_was_set_by_hand_comes_along():
    model, (ids, _real) = made("LlamaForCausalLM"), words()
    model.model.layers[0].self_attn.scaling = 0.3
    before = model(ids).logits
    assert swap(model, 0).scale == 0.3
    close(model(ids).logits, before)


def test_a_class_that_only_has_the_name_is_refused():
    kind = type("LlamaAttention", (nn.Module,), {"__module__": "somebody.modeling_llama"})
    with pytest.raises(ValueError, match=r"LlamaAttention of somebody\.modeling_llama is not the class of this name"):
        from_transformers(kind())
