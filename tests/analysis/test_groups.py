"""Groups, that is a KV head with its query heads: ranked, silenced, gated and cut out, in our models and in swapped
ones."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from oracle import LIMIT, error
from torch import nn

import mha
from mha.analysis import gates, importance, pruning
from mha.interop import ReleasedAttention, swap
from mha.layers import multi_head
from mha.models import LanguageModel

PARTS = {"norm_eps": 1e-6, "norm_offset": 1.0, "gated": True, "sinks": True}
OURS = {
    "grouped": partial(mha.GroupedAttention, kv_heads=3),
    "one key": partial(mha.GroupedAttention, kv_heads=1),
    "released": partial(ReleasedAttention, kv_heads=3, **PARTS),
    "released, turned": partial(ReleasedAttention, kv_heads=2, positions=mha.RotaryPositions(), d_head=4),
    "every head alone": mha.MultiHeadAttention,
}
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 50,
    "intermediate_size": 32, "head_dim": 8, "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
THEIRS = {
    "Llama": {},
    "Mistral": {"sliding_window": 4},
    "Qwen3": {},
    "Gemma": {},
    "GptOss": {"sliding_window": 4, "num_local_experts": 4},
}


def ours(kind):
    def make():
        layer = OURS[kind](24, 6)
        with torch.no_grad():
            for weight in layer.parameters():
                nn.init.normal_(weight, 0, 0.4)
        return layer

    return LanguageModel(50, 24, make, layers=2, positions=None).eval()


def theirs(kind):
    """A small model of theirs with random weights, and layers of ours in all places; all numbers are of float32."""
    torch.set_default_dtype(torch.float32)
    transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
    config = getattr(transformers, f"{kind}Config")(
        **SIZES | THEIRS[kind], attn_implementation="eager" if kind == "GptOss" else "sdpa"
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, 0, 0.15)
    for number in range(2):
        swap(model, number)
    return model


def words(b=3, n=9):
    return torch.randint(1, 50, (b, n), generator=torch.Generator().manual_seed(0))


def losses(model, words):
    logits = model(words[:, :-1])
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.mT, words[:, 1:], reduction="none").mean(-1)


def first_groups(model, count):
    return {path: list(range(count)) for path in multi_head.attention_layers(model)}


@pytest.mark.parametrize("kind", OURS)
@torch.no_grad()
def test_a_model_of_some_groups_is_the_model_with_the_others_silent(kind):
    model, x = ours(kind), words()
    for path, layer in multi_head.attention_layers(model).items():
        size = layer.heads // layer.kv_heads
        for group in range(layer.kv_heads):
            with pruning.mask_heads(model, {path: [group]}, groups=True):
                right = model(x)
            with pruning.mask_heads(model, {path: range(group * size, (group + 1) * size)}):
                assert torch.equal(model(x), right)
            smaller = pruning.prune_heads(model, {path: [group]}, groups=True)
            assert error(smaller(x), right) < LIMIT
            left = multi_head.attention_layers(smaller)[path]
            assert (left.heads, left.kv_heads) == (size, 1)


@torch.no_grad()
def test_the_cache_shrinks_by_the_share_of_the_groups():
    layer = OURS["released"](24, 6).eval()
    smaller, x = pruning.prune_heads(layer, {"": [0, 2]}, groups=True), torch.randn(2, 5, 24)
    kept = []
    for one in (layer, smaller):
        cache = one.new_cache(5)
        one(x, cache=cache, is_causal=True)
        kept.append(cache.bytes)
    assert kept[1] * 3 == kept[0] * 2


@pytest.mark.parametrize("kind", THEIRS)
@torch.no_grad()
def test_a_swapped_model_of_some_groups_is_the_masked_one_with_a_smaller_cache(kind):
    model, x = theirs(kind), words()
    keep = dict(zip(multi_head.attention_layers(model), ([1], [0, 2]), strict=True))
    with pruning.mask_heads(model, keep, groups=True):
        right = model(x).logits
    smaller = pruning.prune_heads(model, keep, groups=True)
    found, whole = smaller(x, use_cache=True), model(x, use_cache=True)
    assert (found.logits - right).abs().max() <= 1e-6 * right.abs().max()
    assert (whole.logits - right).abs().max() > 1e-3 * right.abs().max()
    sizes = [
        [layer.keys.numel() + layer.values.numel() for layer in one.past_key_values.layers] for one in (found, whole)
    ]
    assert [3 * after / before for after, before in zip(*sizes, strict=True)] == [1, 2]
    how = {"max_new_tokens": 4, "do_sample": False}
    for room in ("dynamic", "static"):
        told = smaller.generate(x, cache_implementation=room, **how)
        assert torch.equal(told, smaller.generate(x, use_cache=False, **how))


@pytest.mark.parametrize("make", [lambda: ours("grouped"), lambda: ours("released"), lambda: theirs("Qwen3")])
def test_the_importance_of_a_group_is_the_slope_at_one_gate_for_all_its_heads(make):
    model, x = make(), words()
    with mha.watch(model, "heads", detach=False) as seen:
        loss = losses(model, x).sum()
    found = importance.head_importance(model, losses, [x[:1], x[1:]], groups=True, normalize=False)
    for path, z in seen.items():
        slopes = (torch.autograd.grad(loss, z, retain_graph=True)[0] * z).sum((2, 3)).unflatten(1, (3, 2))
        assert error(found[path.removesuffix(".heads")], slopes.sum(2).abs().mean(0)) < 1e-5
        assert error(found[path.removesuffix(".heads")], slopes.abs().sum(2).mean(0)) > 1e-3  # two heads may cancel
    kept = pruning.prune_heads(model, pruning.top_heads(found, 3), groups=True)
    assert sum(layer.kv_heads for layer in multi_head.attention_layers(kept).values()) == 3


@pytest.mark.parametrize("make", [lambda: ours("grouped"), lambda: ours("released"), lambda: theirs("Llama")])
def test_closed_gates_of_groups_are_pruned_groups(make):
    model, x = make(), words()
    some = gates.Gates(model, log_a=50.0, groups=True).eval()
    assert [len(gate.log_a) for gate in some.each] == [3, 3]
    assert some.penalty().item() == pytest.approx(6)
    some.each[0].log_a.data[[0, 2]] = -50.0
    some.each[1].log_a.data[1] = -50.0
    keep = some.keep()
    assert list(keep.values()) == [[1], [0, 2]]
    smaller = pruning.prune_heads(model, keep, groups=True)
    with some.on(model), pruning.mask_heads(model, keep, groups=True):
        right = losses(model, x)
    with some.on(model):
        assert error(losses(model, x), right) < 1e-6
    assert error(losses(smaller, x), right) < 1e-6


def test_groups_that_are_none_are_refused_and_torn_ones_told_of_groups(reader):
    layer = mha.GroupedAttention(8, 4, 2)
    for wrong in ([2], [-1], [0, 0]):
        told = r"groups \[.*\] of a layer with 2: give .*each once, from 0 to 1"
        with pytest.raises(ValueError, match=told):
            pruning.prune_heads(layer, {"": wrong}, groups=True)
        with pytest.raises(ValueError, match=told), pruning.mask_heads(layer, {"": wrong}, groups=True):
            pass
    with pytest.raises(ValueError, match=r"take or leave all of \[0, 1\] together.*groups=True"):
        pruning.prune_heads(layer, {"": [0, 2, 3]})
    for call in (
        lambda how: pruning.prune_heads(layer, {"": [0]}, groups=how),
        lambda how: importance.head_importance(layer, losses, [], groups=how),
        lambda how: gates.Gates(layer, groups=how),
    ):
        with pytest.raises(TypeError, match="groups = 2: it must be True or False"):
            call(2)
