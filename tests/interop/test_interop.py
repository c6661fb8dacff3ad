"""Weights of other libraries, both ways; and everything that does not fit, refused by name."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import mha
from mha.interop import hugging_face
from mha.interop.hugging_face import from_transformers, to_transformers
from mha.interop.pytorch import from_torch, to_torch
from mha.interop.seq_first import SeqFirst

D, HEADS = 24, 6


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")


# ---- torch ----


@pytest.mark.parametrize(
    "sizes", [{}, {"kdim": 10}, {"kdim": 10, "vdim": 7}, {"bias": False}, {"vdim": 7, "bias": False}]
)
def test_there_and_back_every_bit_is_the_same(sizes):
    theirs = nn.MultiheadAttention(D, HEADS, dropout=0.1, batch_first=True, **sizes)
    for p in theirs.parameters():
        nn.init.normal_(p)
    back = to_torch(from_torch(theirs))
    assert back.dropout == 0.1
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(back.state_dict()[name], p) for name, p in theirs.state_dict().items())


def test_gradients_are_torchs_too():
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True)
    ours, x = from_torch(theirs), noise(2, 5, D)
    pull = noise(2, 5, D, seed=1)
    theirs(x, x, x)[0].backward(pull)
    ours(x).backward(pull)
    packed = torch.cat([ours.W_q.weight.grad, ours.W_k.weight.grad, ours.W_v.weight.grad])
    torch.testing.assert_close(packed, theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.W_o.weight.grad, theirs.out_proj.weight.grad)


def test_the_copy_is_a_copy_with_the_same_dtype_and_mode():
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.bfloat16).eval()
    ours = from_torch(theirs)
    assert ours.W_q.weight.dtype == torch.bfloat16
    assert not ours.training
    before = theirs.in_proj_weight.clone()
    nn.init.zeros_(ours.W_q.weight)
    assert torch.equal(theirs.in_proj_weight, before)
    assert to_torch(ours).in_proj_weight.dtype == torch.bfloat16


def test_weights_can_go_into_a_layer_that_exists():
    theirs, ours = nn.MultiheadAttention(D, HEADS, batch_first=True), mha.MultiHeadAttention(D, HEADS)
    assert from_torch(theirs, into=ours) is ours
    assert torch.equal(ours.W_k.weight, theirs.in_proj_weight[D : 2 * D])


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"add_bias_kv": True}, "add_bias_kv adds a learned key and value"),
        ({"add_zero_attn": True}, "add_zero_attn adds a key and a value of zeros"),
        ({"batch_first": False}, "batch_first=False.*module.batch_first = True.*SeqFirst"),
    ],
)
def test_an_option_of_torch_without_a_counterpart_is_refused(made, reason):
    with pytest.raises(ValueError, match=reason):
        from_torch(nn.MultiheadAttention(D, HEADS, **{"batch_first": True} | made))


def test_all_reasons_are_named_at_once():
    with pytest.raises(ValueError, match=r"(?s)add_bias_kv.*add_zero_attn.*batch_first"):
        from_torch(nn.MultiheadAttention(D, HEADS, add_bias_kv=True, add_zero_attn=True))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: mha.MultiHeadAttention(D, HEADS, d_head=3), r"d_head = 3.*24 / 6|d_head = 3.*= 4 channels only"),
        (lambda: mha.MultiHeadAttention(D, 5, d_head=4), r"d_head = 4.*= 4.8 channels only"),
        (lambda: mha.MultiHeadAttention(D, HEADS, positions=mha.RotaryPositions()), r"positions are RotaryPositions"),
        (lambda: mha.MultiHeadAttention(D, HEADS, positions=mha.LinearBias()), r"positions are LinearBias"),
        (lambda: mha.MultiHeadAttention(D, HEADS, bias="qkv"), r"bias = 'qkv'.*all projections or in none"),
        (lambda: mha.GroupedAttention(D, HEADS, 2), r"kv_heads = 2.*as many KV heads"),
    ],
)
def test_what_torch_has_no_place_for_is_refused(layer, reason):
    with pytest.raises(ValueError, match=reason):
        to_torch(layer())


def test_a_layer_that_computes_something_else_is_refused():
    class Doubled(mha.MultiHeadAttention):
        def forward(self, *args, **how):
            return 2 * super().forward(*args, **how)

    with pytest.raises(ValueError, match=r"Doubled computes something other than nn.MultiheadAttention"):
        to_torch(Doubled(D, HEADS))


def test_a_grouped_layer_with_a_key_head_for_every_query_head_is_plain():
    layer, x = mha.GroupedAttention(D, HEADS, HEADS), noise(2, 5, D)
    torch.testing.assert_close(to_torch(layer)(x, x, x)[0], layer(x))


def test_a_layer_of_other_sizes_names_each_difference():
    theirs = nn.MultiheadAttention(D, HEADS, kdim=10, dropout=0.1, bias=False, batch_first=True)
    ours = mha.MultiHeadAttention(20, 4)
    before = copy.deepcopy(ours.state_dict())
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is looked at below
        from_torch(theirs, into=ours)
    for line in (
        "d_model: the layer has 20, nn.MultiheadAttention has 24 (its option embed_dim)",
        "heads: the layer has 4, nn.MultiheadAttention has 6 (its option num_heads)",
        "d_head: the layer has 5, nn.MultiheadAttention has 4",
        "kdim: the layer has 20, nn.MultiheadAttention has 10 (its option kdim)",
        "bias: the layer has 'qkvo', nn.MultiheadAttention has '' (its option bias)",
        "dropout: the layer has 0.0, nn.MultiheadAttention has 0.1 (its option dropout)",
    ):
        assert line in str(caught.value)
    assert "Make one of the two anew" in str(caught.value)
    assert all(torch.equal(before[name], p) for name, p in ours.state_dict().items())


# ---- sequence first ----


def seq_first_by_hand(layer, query, key, value, mask):
    """The formula written for (sequence, batch, heads, channels), with the softmax over the second axis."""
    s = SeqFirst(layer)
    q, k, v = s.prepare(query), s.prepare(key, "k"), s.prepare(value, "v")
    scores = torch.einsum("ibhd,jbhd->ijbh", q, k) / layer.d_head**0.5
    scores = scores.masked_fill(~mask[..., None], -torch.inf)
    return layer.W_o(torch.einsum("ijbh,jbhd->ibhd", scores.softmax(1), v).flatten(2))


@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 7, 3), (5, 7, 1), (1, 7, 1)])
def test_sequence_first_is_the_formula_written_for_that_layout(shape):
    layer = mha.MultiHeadAttention(D, HEADS, kdim=10, vdim=9)
    query, key, value = noise(5, 3, D), noise(7, 3, 10, seed=1), noise(7, 3, 9, seed=2)
    mask = noise(*shape, seed=4) > -0.3
    assert SeqFirst(layer).prepare(query).shape == (5, 3, HEADS, 4)
    expected = seq_first_by_hand(layer, query, key, value, mask)
    torch.testing.assert_close(SeqFirst(layer)(query, key, value, mask), expected)


def test_sequence_first_keywords_and_self_attention():
    layer, x = mha.MultiHeadAttention(D, HEADS), noise(5, 3, D)
    expected = layer(x.transpose(0, 1), is_causal=True).transpose(0, 1)
    torch.testing.assert_close(SeqFirst(layer)(query=x, is_causal=True), expected)
    causal = mha.causal_mask(5)[:, :, None]
    torch.testing.assert_close(SeqFirst(layer)(query=x, key=x, value=x, mask=causal), expected)


def test_prepare_of_shared_heads_has_fewer_key_heads():
    wrapped = SeqFirst(mha.GroupedAttention(D, HEADS, 2))
    assert wrapped.prepare(noise(5, 3, D)).shape == (5, 3, HEADS, 4)
    assert wrapped.prepare(noise(5, 3, D), "v").shape == (5, 3, 2, 4)
    with pytest.raises(ValueError, match=r"part = 'o'"):
        wrapped.prepare(noise(5, 3, D), "o")


@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5), (5, 3, 5), (5, 5, 2), (2, 5, 3)])
def test_a_mask_in_another_order_is_refused(shape):
    with pytest.raises(ValueError, match=r"\(query, key, batch\) = \(5 or 1, 5, 3 or 1\)"):
        SeqFirst(mha.MultiHeadAttention(D, HEADS))(noise(5, 3, D), mask=torch.ones(shape, dtype=torch.bool))


# ---- transformers ----


def bert(transformers, **made):
    config = transformers.BertConfig(hidden_size=D, num_attention_heads=HEADS, intermediate_size=8, **made)
    return transformers.models.bert.modeling_bert.BertAttention(config)


def gpt2(transformers, **made):
    config = transformers.GPT2Config(n_embd=D, n_head=HEADS, **made)
    return transformers.models.gpt2.modeling_gpt2.GPT2Attention(config, layer_idx=1)


def llama(transformers, **made):
    config = transformers.LlamaConfig(hidden_size=D, num_attention_heads=HEADS, **made)
    return transformers.models.llama.modeling_llama.LlamaAttention(config, layer_idx=0)


def test_what_each_class_becomes(transformers):
    layer = from_transformers(bert(transformers))
    assert type(layer) is mha.MultiHeadAttention
    assert layer.dropout == 0.1
    assert type(from_transformers(gpt2(transformers))) is mha.MultiHeadAttention
    layer = from_transformers(llama(transformers, num_key_value_heads=2))
    assert type(layer) is mha.GroupedAttention
    assert (layer.heads, layer.kv_heads, layer.positions.layout) == (HEADS, 2, "half")
    assert type(from_transformers(llama(transformers))) is mha.MultiHeadAttention


def test_a_whole_llama_with_our_attention_inside_says_the_same(transformers):
    """In float64, with the library's own angles, norms and masks around our layer."""
    config = transformers.LlamaConfig(
        vocab_size=17, hidden_size=D, num_attention_heads=HEADS, num_key_value_heads=2, intermediate_size=30,
        num_hidden_layers=2, attn_implementation="sdpa",
    )  # fmt: skip
    model = transformers.LlamaModel(config).double().eval()
    words = torch.randint(17, (2, 6))

    class Ours(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.layer = from_transformers(module)

        def forward(self, hidden_states, **_how):
            return self.layer(hidden_states, is_causal=True), None

    with torch.no_grad():
        theirs = model(words, use_cache=False).last_hidden_state
        for block in model.layers:
            block.self_attn = Ours(block.self_attn)
        ours = model(words, use_cache=False).last_hidden_state
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12 * theirs.abs().max())


@pytest.mark.parametrize(
    ("make", "made", "reason"),
    [
        (gpt2, {"scale_attn_weights": False}, "scale_attn_weights=False"),
        (gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        (gpt2, {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn"),
        (
            llama,
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            r"(?s)rope_type = 'dynamic'.*length of the sequence.*interop\.swap",
        ),
    ],
)
def test_an_option_of_transformers_without_a_counterpart_is_refused(transformers, make, made, reason):
    with pytest.raises(ValueError, match=reason):
        from_transformers(make(transformers, **made))


def test_old_bert_with_relative_positions_is_refused(transformers):
    module = bert(transformers)
    module.self.position_embedding_type = "relative_key"
    with pytest.raises(ValueError, match="position_embedding_type = 'relative_key' changes the scores"):
        from_transformers(module)


def test_an_unknown_class_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"Linear is not known here.*BertAttention.*GPT2Attention.*LlamaAttention"):
        from_transformers(nn.Linear(2, 2))


def test_weights_that_do_not_fit_their_own_options_are_refused(transformers):
    module = bert(transformers)
    module.self.num_attention_heads = 4
    with pytest.raises(ValueError, match=r"W_q.weight has shape \(24, 24\), but its options ask for \(16, 24\)"):
        from_transformers(module)


def test_a_layer_that_does_not_fit_names_each_difference_and_changes_nothing(transformers):
    module = llama(transformers, num_key_value_heads=2)
    before = copy.deepcopy(module.state_dict())
    layer = mha.GroupedAttention(D, HEADS, 3, positions=mha.RotaryPositions(5e5, "interleaved"), bias="q")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is looked at below
        to_transformers(layer, module)
    for line in (
        "kv_heads: the layer has 3, LlamaAttention has 2 (its option num_key_value_heads)",
        "bias: the layer has 'q', LlamaAttention has '' (its option attention_bias)",
        "positions: the layer has \"RotaryPositions(base=500000.0, layout='interleaved')",
        "(its option rope_parameters)",
    ):
        assert line in str(caught.value)
    assert all(torch.equal(before[name], p) for name, p in module.state_dict().items())
    with pytest.raises(ValueError, match=r"positions: the layer has 'none'"):
        to_transformers(mha.GroupedAttention(D, HEADS, 2, bias=False), module)


# ---- checkpoints by name ----


@pytest.fixture(scope="module")
def folder(transformers, tmp_path_factory):
    """A checkpoint on this computer: a tiny GPT-2 with random weights."""
    path = tmp_path_factory.mktemp("checkpoint")
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=D, n_head=HEADS, n_layer=3)
    model = transformers.GPT2Model(config).float()
    model.save_pretrained(path)
    return path, model


def test_a_checkpoint_in_a_folder_is_loaded_layer_by_layer(folder):
    path, model = folder
    for number in range(3):
        layer = mha.interop.from_pretrained(path, number)
        assert torch.equal(layer.W_v.weight, model.h[number].attn.c_attn.weight.T[2 * D :].detach())
        assert not layer.training


def test_a_layer_that_a_checkpoint_does_not_have_is_refused(folder):
    with pytest.raises(ValueError, match=r"layer = 3.*has 3 layers, numbered 0 to 2"):
        mha.interop.from_pretrained(folder[0], 3)


def test_a_checkpoint_with_other_attention_is_refused(transformers, tmp_path):
    config = transformers.DebertaConfig(
        vocab_size=11, hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8
    )
    transformers.DebertaModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)DebertaAttention.*output_attentions=True"):
        mha.interop.from_pretrained(tmp_path)


def test_without_a_network_a_name_gives_a_clear_message(transformers, tmp_path):
    code = "from mha.interop import from_pretrained\n"
    code += "try:\n    from_pretrained('no-such/checkpoint')\nexcept OSError as e:\n    print(e)"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert "'no-such/checkpoint' could not be loaded" in run.stdout, run.stderr
    assert "Check the name and the connection, or give the folder" in run.stdout
    assert "random weights" in run.stdout


def test_without_transformers_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'mha-course\[interop\]'"):
        hugging_face.from_pretrained("gpt2")


def test_importing_interop_does_not_import_transformers():
    code = "import sys, mha.interop; print('transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "False", run.stderr
