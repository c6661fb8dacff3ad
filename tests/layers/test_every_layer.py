"""What holds for every layer of the registry, and the plain layers against torch and the oracle."""

import importlib
import inspect
import pkgutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import LIMIT, by_hand, error
from registry import BATCH, KEYS, LAYERS, QUERIES, every
from torch import nn

import mha
from mha import reference
from mha.analysis import leaks
from mha.functional import masks
from mha.layers import MemoryCache

HALVES = (torch.float32, torch.bfloat16, torch.float16)


def gradients(layer, *inputs, **how):
    """The gradients with respect to the inputs and all weights, of a fixed weighted sum of the outputs."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    learned = [w for name, w in layer.named_parameters() if not name.startswith("indexer.")]  # a loss of their own
    output = layer(*inputs, **how)
    output = output[0] if isinstance(output, tuple) else output
    weight = torch.linspace(-1, 2, output.numel()).view_as(output)
    return torch.autograd.grad((output * weight).sum(), [*inputs, *learned])


def test_every_layer_of_the_package_is_in_the_registry():
    found = set()
    for module in pkgutil.iter_modules(mha.layers.__path__, "mha.layers."):
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and issubclass(kind, nn.Module) and kind.__module__ == module.name:
                parameters = list(inspect.signature(kind.forward).parameters)
                found |= {kind} if parameters[1:5] == ["query", "key", "value", "mask"] else set()
    assert found - {mha.Heads} == {type(entry.build()) for entry in LAYERS}


@every()
def test_no_matrix_is_drawn_and_thrown_away(entry, monkeypatch):
    drawn, draw = [], nn.Linear.reset_parameters

    def counted(linear):
        drawn.append(0 if linear.weight.is_meta else linear.weight.numel())
        draw(linear)

    monkeypatch.setattr(nn.Linear, "reset_parameters", counted)
    layer = entry.build()
    assert sum(drawn) == sum(part.weight.numel() for part in layer.modules() if isinstance(part, nn.Linear))


# ---- what comes out


@every(alone=True)
def test_one_row_comes_out_for_each_query(entry):
    layer = entry.build()
    y = layer(entry.words())
    assert y.shape[:2] == (BATCH, QUERIES)
    assert layer(entry.words(1, 1)).shape[:2] == (1, 1)
    if hasattr(layer, "W_o"):
        assert y.shape[2] == entry.width


@every(crosses=True)
def test_a_separate_memory_gives_its_own_number_of_keys(entry):
    layer, x = entry.build().eval(), entry.words()
    key, value = entry.memory(layer)
    with mha.watch(layer) as seen:
        assert layer(x, key, value).shape[:2] == (BATCH, QUERIES)
    assert seen.weights.shape[2:] == (QUERIES, KEYS)


@every(crosses=True, alone=True)
def test_value_defaults_to_key_and_key_to_query(entry):
    layer, x = entry.build().eval(), entry.words()
    key, _ = entry.memory(layer)
    assert torch.equal(layer(x, key), layer(x, key, key))
    assert torch.equal(layer(x), layer(x, x, x))


@every(alone=True)
def test_training_differs_from_evaluation_only_by_dropout(entry):
    layer, x = entry.build(), entry.words()
    assert torch.equal(layer.eval()(x), layer(x))
    assert torch.equal(layer.train()(x), layer.eval()(x)) is not entry.dropout


@every(alone=True)
def test_inputs_are_left_as_they_were(entry):
    layer, x, mask = entry.build(), entry.words(), mha.causal_mask(QUERIES)
    before = x.clone(), mask.clone()
    layer(x, mask=mask)
    assert torch.equal(x, before[0])
    assert torch.equal(mask, before[1])


@every()
def test_weights_can_be_moved_to_another_layer_of_the_same_kind(entry):
    one, other = entry.build().eval(), entry.build().eval()
    x = entry.words()
    memory = () if entry.alone else entry.memory(one)
    assert error(one(x, *memory), other(x, *memory)) > 1e-3
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x, *memory), other(x, *memory))
    assert all(name.startswith(("W_q", "W_k", "W_v", "W_o", *entry.own)) for name in one.state_dict())


# ---- who depends on whom


@every(alone=True)
def test_batch_entries_do_not_meet(entry):
    layer, x = entry.build().eval(), entry.words()
    for b in range(BATCH):
        assert error(layer(x[b : b + 1]), layer(x)[b : b + 1]) < LIMIT
    x[0] = torch.nan
    assert layer(x)[0].isnan().all()
    assert layer(x)[1:].isfinite().all()


@every(alone=True, ordered=False)
def test_without_positions_the_order_of_the_words_does_not_matter(entry):
    layer, x, order = entry.build().eval(), entry.words(), torch.tensor([3, 0, 4, 1, 2])
    assert error(layer(x[:, order]), layer(x)[:, order]) < LIMIT


@every(alone=True, ordered=True)
def test_with_positions_the_order_of_the_words_matters(entry):
    layer, x, order = entry.build().eval(), entry.words(), torch.tensor([3, 0, 4, 1, 2])
    assert error(layer(x[:, order]), layer(x)[:, order]) > 1e-3


@every(alone=True, chooses=False)
def test_without_a_mask_every_output_sees_every_input(entry):
    found = leaks(entry.build(), entry.words())
    assert all(sees.all() for sees in found.sees.values())


@every(alone=True)
def test_a_causal_layer_sees_all_of_the_past_and_nothing_of_the_future(entry):
    layer = entry.build()
    cache = layer.new_cache if entry.caches else None
    found = leaks(layer, entry.words(6), is_causal=True, cache=cache)
    assert not found, found
    assert entry.chooses or not any(found.blind.values())
    assert set(found.sees) == {"train", "eval", "cached"} if entry.caches else {"train", "eval"}


@every(alone=True)
def test_a_layer_sees_exactly_what_its_mask_shows(entry):
    mask = torch.rand(QUERIES, QUERIES) < 0.5
    for sees in leaks(entry.build(), entry.words(), mask=mask).sees.values():
        with_itself = mask | (torch.eye(QUERIES, dtype=torch.bool) & mask.any(-1, keepdim=True))  # through its query
        if not (
            entry.composes or entry.routes or entry.rows_sum_below_one
        ):  # else a single visible key gets weight 1 whatever the query
            with_itself &= (mask.sum(-1, keepdim=True) > 1) | mask
        if entry.chooses:
            assert not (sees & ~(mask | with_itself | torch.eye(QUERIES, dtype=torch.bool))).any()
        else:
            assert torch.equal(sees, with_itself)


@every(alone=True)
def test_padding_changes_nothing(entry):
    layer, x = entry.build().eval(), entry.words()
    padded = torch.cat([x, 100 * torch.randn(BATCH, 2, entry.width)], 1)
    found = layer(padded, mask=mha.padding_mask([QUERIES] * BATCH, QUERIES + 2))[:, :QUERIES]
    assert error(found, layer(x)) < LIMIT


@every()
def test_gradients_reach_every_weight(entry):
    layer, x = entry.build(), entry.words().requires_grad_()
    layer(x, *(() if entry.alone else entry.memory(layer))).square().sum().backward()
    assert x.grad.abs().min() > 0
    assert all(w.grad is None for name, w in layer.named_parameters() if name not in entry.taught(layer))
    for name, weight in entry.taught(layer).items():
        if name == "W_k.bias" and not (
            entry.ordered or entry.composes or entry.rows_sum_below_one or entry.constant_memory
        ):  # it adds the same to every score of a row, which changes nothing
            assert weight.grad.abs().max() < 1e-12
        elif name != "W_k.bias":
            assert weight.grad.abs().max() > 1e-6, name


@every()
def test_a_layer_made_without_memory_can_be_filled_as_a_new_one(entry):
    with torch.device("meta"):
        layer = entry.build()
    assert all(t.is_meta for t in layer.state_dict().values())
    filled = layer.to_empty(device=torch.get_default_device())
    for module in filled.modules():
        if [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            module.reset_parameters()
    state, fresh = filled.state_dict(), entry.build().state_dict()
    for name, weight in fresh.items():
        assert state[name].isfinite().all()
        assert not name.endswith("_alpha") or torch.equal(state[name], weight)


# ---- mixed precision


@every()
@pytest.mark.parametrize("watched", [False, True], ids=["alone", "watched"])
def test_under_autocast_a_layer_reads_nearly_the_same_and_learns(entry, watched):
    layer = entry.build().float().eval()
    inputs = entry.words(dtype=torch.float32), *(() if entry.alone else entry.memory(layer))
    whole = layer(*inputs)
    with torch.autocast(whole.device.type, torch.bfloat16), mha.watch(layer, *(["weights"] if watched else [])):
        halved = layer(*inputs)
        with torch.no_grad():
            read = layer(*inputs)
    for y in (halved, read):
        assert (y.float() - whole).abs().max() < 0.06 * whole.abs().max()
    halved.float().square().sum().backward()
    learned = entry.taught(layer).values()
    assert all(w.grad is not None and w.grad.dtype == torch.float32 for w in learned)
    assert all(w.grad.isfinite().all() for w in learned)


@every(alone=True, caches=True)
@torch.no_grad()
def test_under_autocast_a_cache_continues(entry):
    layer, x = entry.build().float().eval(), entry.words(dtype=torch.float32)
    cache = layer.new_cache(QUERIES)
    with torch.autocast(x.device.type, torch.bfloat16):
        parts = [layer(chunk, is_causal=True, cache=cache) for chunk in x.split((2, 1, 2), 1)]
        assert (torch.cat(parts, 1) - layer(x, is_causal=True)).abs().max() < 0.05


# ---- rows with nothing to look at


@every(alone=True)
@pytest.mark.parametrize("dtype", [*HALVES, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_query_with_nothing_to_look_at_reads_zeros(entry, dtype, mode):
    layer = entry.build().to(dtype).train(mode == "train")
    x = entry.words(dtype=dtype).requires_grad_()
    mask = mha.padding_mask([QUERIES, 2, 0]) & (torch.arange(QUERIES) > 0)[:, None]
    for watched in (False, True):
        layer.zero_grad()
        if watched:
            with mha.watch(layer) as seen:
                y = layer(x, mask=mask)
            assert seen.weights[:, :, 0].abs().max() == seen.weights[2].abs().max() == 0
            assert seen.heads[:, ..., 0, :].abs().max() == seen.heads[2].abs().max() == 0
        else:
            y = layer(x, mask=mask)
        nothing = layer.W_o.bias if hasattr(layer, "W_o") and layer.W_o.bias is not None else torch.zeros(())
        assert torch.equal(y[:, 0], nothing.to(dtype).expand_as(y[:, 0]))
        assert torch.equal(y[2], nothing.to(dtype).expand_as(y[2]))
        y.float().square().sum().backward()
        assert x.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in entry.taught(layer).values())


@every(alone=True, caches=True)
@pytest.mark.parametrize("dtype", [*HALVES, torch.float64], ids=str)
@torch.no_grad()
def test_a_query_with_nothing_to_look_at_reads_zeros_behind_a_cache(entry, dtype):
    layer, x = entry.build().to(dtype).eval(), entry.words(dtype=dtype)
    cache, outputs = layer.new_cache(), []
    for start, end in ((0, 2), (2, 3), (3, 5)):
        mask = torch.ones(BATCH, 1, end - start, end, dtype=torch.bool)
        mask[1] = False
        outputs.append(layer(x[:, start:end], mask=mask, is_causal=True, cache=cache))
    y = torch.cat(outputs, 1)
    nothing = torch.zeros(()).to(dtype) if layer.W_o.bias is None else layer.W_o.bias
    assert torch.equal(y[1], nothing.expand_as(y[1]))
    whole = layer(x, is_causal=True)
    assert y.isfinite().all()
    assert (y - whole)[[0, 2]].abs().max() <= 30 * torch.finfo(dtype).eps


# ---- neutral settings: every variant is plain attention at some setting


@pytest.mark.parametrize(
    "kind", sorted({type(e.build()) for e in LAYERS if e.plain} - {mha.MultiHeadAttention}, key=str)
)
def test_a_variant_made_from_a_plain_layer_is_the_plain_layer(kind):
    if kind is mha.SelfAttention:  # one head without W_o: heads with W_o = 1 are the same
        plain = mha.MultiHeadAttention(5, 1, bias="qkv")
        nn.init.eye_(plain.W_o.weight)
        variant = kind(5, bias=True)
        variant.load_state_dict({name: w for name, w in plain.state_dict().items() if "W_o" not in name})
    else:
        plain = mha.MultiHeadAttention(6, 3)
        variant = kind.from_plain(plain)
    assert_alike(kind, variant, plain)


def assert_alike(kind, variant, plain):
    """Outputs and gradients of two layers agree, in every way to call this kind."""
    inputs = [torch.randn(3, 5, plain.d_model)]
    hows = [{}, {"is_causal": True}, {"mask": mha.padding_mask([5, 0, 2])}]
    if not any(entry.alone for entry in LAYERS if type(entry.build()) is kind):  # it never reads its own words
        inputs, hows = [*inputs, inputs[0].flip(1)], [how for how in hows if "is_causal" not in how]
    for how in hows:
        assert error(variant(*inputs, **how), plain(*inputs, **how)) < LIMIT
        (dx, *_), (right, *_) = gradients(variant, *inputs, **how), gradients(plain, *inputs, **how)
        assert error(dx, right) < LIMIT


VARIANTS = sorted({type(e.build()) for e in LAYERS if e.plain and hasattr(type(e.build()), "from_plain")}, key=str)
NEVER_PLAIN = sorted({type(e.build()) for e in LAYERS if not e.plain}, key=str)
NOT_PLAIN = {
    "shared keys": lambda: mha.GroupedAttention(6, 3, 1),
    "sparse": lambda: mha.EntmaxAttention(6, 3),
    "overlapping": lambda: mha.OverlappingAttention(6, 3, 1),
    "talking": lambda: mha.TalkingAttention(6, 3),
}


@pytest.mark.parametrize("kind", VARIANTS)
@pytest.mark.parametrize("bias", [False, "o", "qkv"])
def test_a_variant_made_from_a_plain_layer_has_its_biases_and_no_others(kind, bias):
    plain = mha.MultiHeadAttention(6, 3, bias=bias)
    assert_alike(kind, kind.from_plain(plain), plain)


@pytest.mark.parametrize("kind", VARIANTS)
@pytest.mark.parametrize("other", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_a_variant_is_made_from_a_plain_layer_and_from_no_other(kind, other):
    if type(other()) is mha.GroupedAttention and issubclass(kind, mha.GroupedAttention):
        pytest.skip("it takes a layer of its own kind, and changes the number of KV heads")
    with pytest.raises(ValueError, match=f"{type(other()).__name__} is no plain layer"):
        kind.from_plain(other())


@pytest.mark.parametrize("kind", VARIANTS)
def test_a_variant_keeps_the_scale_of_the_scores(kind):
    plain = mha.MultiHeadAttention(6, 3)
    plain.scale = 0.9
    assert_alike(kind, kind.from_plain(plain), plain)


@pytest.mark.parametrize("kind", NEVER_PLAIN)
def test_a_layer_that_no_setting_makes_plain_says_why(reader, kind):
    with pytest.raises(ValueError, match=rf"no setting of {kind.__name__} is softmax attention, because .*train it"):
        kind.from_plain(mha.MultiHeadAttention(6, 3))


@pytest.mark.parametrize("kind", VARIANTS)
@pytest.mark.parametrize("positions", [mha.RotaryPositions, mha.LinearBias])
def test_a_variant_keeps_the_positions_or_refuses_them(kind, positions):
    plain, x = mha.MultiHeadAttention(8, 2, positions=positions()), torch.randn(2, 5, 8)
    try:
        variant = kind.from_plain(plain)
    except ValueError as refused:
        assert f"this layer has {positions.__name__} inside" in str(refused)  # noqa: PT017
    else:
        assert error(variant(x), plain(x)) < LIMIT


# ---- the plain layers against torch and the oracle


def copied(d_model, heads, **settings):
    """Torch's layer, and ours with the same weights."""
    theirs = nn.MultiheadAttention(d_model, heads, batch_first=True, **settings)
    ours = mha.MultiHeadAttention(d_model, heads, **settings)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(0.5 * torch.randn_like(p))  # biases too: they begin at zero
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        packed = theirs.in_proj_weight is not None
        weights = theirs.in_proj_weight.chunk(3) if packed else [getattr(theirs, name) for name in names]
        for linear, weight in zip((ours.W_q, ours.W_k, ours.W_v), weights, strict=True):
            linear.weight.copy_(weight)
        if theirs.in_proj_bias is not None:
            for linear, bias in zip((ours.W_q, ours.W_k, ours.W_v), theirs.in_proj_bias.chunk(3), strict=True):
                linear.bias.copy_(bias)
        ours.W_o.load_state_dict(theirs.out_proj.state_dict())
    return ours, theirs


@st.composite
def situations(draw):
    """Sizes, settings and masks of a layer, self- or cross-attention; every query may look at something."""
    b, h, d, i, j = (draw(st.integers(1, most)) for most in (3, 3, 3, 5, 5))
    cross, bias, other_widths = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    widths = {"kdim": 4, "vdim": 5} if cross and other_widths else {}
    j = j if cross else i
    mask = torch.rand(i, j, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) < 0.6
    mask[:, 0] = True
    lengths = [draw(st.integers(1, j)) for _ in range(b)]
    return (b, h, d, i, j), cross, {"bias": bias, **widths}, mask, lengths


@given(situations())
def test_heads_are_those_of_torch_in_value_and_gradient(situation):
    (b, h, d, i, j), cross, settings, mask, lengths = situation
    padding = mha.padding_mask(lengths, j)
    ours, theirs = copied(h * d, h, **settings)
    x, key = torch.randn(b, i, h * d), torch.randn(b, j, settings.get("kdim", h * d))
    inputs = (x, key, torch.randn(b, j, settings.get("vdim", h * d))) if cross else (x,)
    how = {"attn_mask": ~mask, "key_padding_mask": ~padding[:, 0, 0], "average_attn_weights": False}

    class Theirs(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = theirs

        def forward(self, x, key=None, value=None):
            key = x if key is None else key
            return theirs(x, key, key if value is None else value, **how)

    see = masks.combine(mask, padding)
    with mha.watch(ours) as seen:
        found = ours(*inputs, mask=see)
    right, weights = Theirs()(*inputs)
    assert error(found, right) < LIMIT
    assert error(ours(*inputs, mask=see), right) < LIMIT
    assert error(seen.weights, weights) < LIMIT
    mine, right = gradients(ours, *inputs, mask=see), gradients(Theirs(), *inputs)
    assert error(mine[: len(inputs)], right[: len(inputs)]) < LIMIT
    assert error(_packed(ours, mine[len(inputs) :]), _packed_of_torch(theirs, right[len(inputs) :])) < LIMIT


def _packed(layer, gradients):
    """Our gradients, in torch's order: the input projections, their biases, the output projection."""
    by_name = dict(zip((name for name, _ in layer.named_parameters()), gradients, strict=True))
    weights = torch.cat([by_name[f"W_{p}.weight"].flatten() for p in "qkv"])
    biases = torch.cat([by_name[f"W_{p}.bias"] for p in "qkv"]) if layer.W_q.bias is not None else torch.zeros(0)
    return torch.cat([weights, biases, *(g.flatten() for name, g in by_name.items() if name.startswith("W_o"))])


def _packed_of_torch(layer, gradients):
    by_name = dict(zip((name for name, _ in layer.named_parameters()), gradients, strict=True))
    names = [*(n for n in by_name if n.endswith("proj_weight")), *(n for n in by_name if n == "in_proj_bias")]
    return torch.cat([by_name[name].flatten() for name in [*names, *(n for n in by_name if n.startswith("out_proj"))]])


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans())
def test_heads_are_those_of_the_oracle(h, d, i, j, cross, masked):
    m = h * d
    layer = mha.MultiHeadAttention(m, h, bias=False)
    x, memory = torch.randn(1, i, m), torch.randn(1, j if cross else i, m)
    mask = torch.rand(i, memory.shape[1]) < 0.5 if masked else None
    weights = [linear.weight.T.tolist() for linear in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)]
    right = reference.multi_head_attention(
        x[0].tolist(), *weights, h, memory[0].tolist() if cross else None, None if mask is None else mask.tolist()
    )
    found = layer(x, memory if cross else None, mask=mask)
    assert error(found[0], torch.tensor(right)) < LIMIT


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_one_head_is_that_of_the_oracle(b, d_k, d_v, i, j, bias):
    layer = mha.SelfAttention(4, d_k, d_v, bias=bias)
    x, key, value = torch.randn(b, i, 4), torch.randn(b, j, 4), torch.randn(b, j, 4)
    mask = torch.rand(i, j) < 0.5
    q, k, v = (t[:, None].detach() for t in (layer.W_q(x), layer.W_k(key), layer.W_v(value)))
    right = by_hand(reference.attention, q, k, v, mask=mask)[:, 0]
    assert error(layer(x, key, value, mask), right) < LIMIT


def test_what_the_heads_add_sums_to_the_output():
    layer, x = mha.MultiHeadAttention(6, 3, d_head=5), torch.randn(2, 5, 6)
    with mha.watch(layer) as seen:
        y = layer(x)
    added = layer.contributions(seen.heads)
    assert added.shape == (2, 3, 5, 6)
    assert error(added.sum(1) + layer.W_o.bias, y) < LIMIT


# ---- bad input


@every(alone=True)
def test_inputs_of_the_wrong_form_are_refused(reader, entry):
    layer, w = entry.build(), entry.width
    x = torch.randn(BATCH, QUERIES, w)
    bad = [
        (torch.randn(QUERIES, w), ValueError, rf"query has shape \(5, {w}\).*\(batch, sequence, {w}\)"),
        (torch.randn(BATCH, 1, QUERIES, w), ValueError, rf"query has shape \(3, 1, 5, {w}\)"),
        (torch.randn(BATCH, QUERIES, w + 1), ValueError, rf"query.*{w + 1} channels.*built for {w}"),
        (x.long(), TypeError, r"query has dtype torch\.int64.*embed token numbers"),
        (x > 0, TypeError, r"query has dtype torch\.bool"),
        (torch.randn(BATCH, 0, w), ValueError, r"query has shape .*0.*empty"),
        (torch.randn(0, QUERIES, w), ValueError, r"query has shape .*0.*empty"),
    ]
    for query, kind, message in bad:
        with pytest.raises(kind, match=message):
            layer(query)
    with pytest.raises(ValueError, match=r"value = .* was given without a key"):
        layer(x, value=x)


@every(crosses=True)
def test_inputs_that_do_not_belong_together_are_refused(reader, entry):
    layer, x = entry.build(), entry.words()
    key, value = entry.memory(layer)
    bad = [
        ((x[:2], key, value), ValueError, r"query \(2, 5, .*key \(3, 7, .*one batch"),
        ((x[:1], key, value), ValueError, r"query \(1, 5, .*key \(3, 7, .*one batch"),
        ((x, key, value[:, :6]), ValueError, r"key \(3, 7, .*value \(3, 6, .*key and value one length"),
        ((x, key[..., :-1], value), ValueError, "key of shape .*channels, but this layer was built for"),
        ((x, key, torch.cat([value, value], -1)), ValueError, "value of shape .*channels, but this layer was built"),
        ((x, key[0], value), ValueError, "key has shape"),
        ((x, key.int(), value), TypeError, r"key has dtype torch\.int32"),
        ((x, key, value.long()), TypeError, r"value has dtype torch\.int64"),
        ((x, key[:, :0], value[:, :0]), ValueError, r"key has shape \(3, 0, .*empty"),
    ]
    for inputs, kind, message in bad:
        with pytest.raises(kind, match=message):
            layer(*inputs)
    with pytest.raises(ValueError, match=r"is_causal with a separate key.*no future to hide"):
        layer(x, key, value, is_causal=True)


@every(alone=True)
def test_masks_that_do_not_fit_are_refused(reader, entry):
    layer, x = entry.build(), entry.words()
    ones = torch.ones(QUERIES, QUERIES)
    bad = [
        (ones, TypeError, "float64.*may look"),
        (ones.long(), TypeError, r"int64.*mask\.bool\(\)"),
        (torch.ones(BATCH, QUERIES, dtype=torch.bool), ValueError, r"\(3, 5\) does not fit"),
        (torch.ones(BATCH, QUERIES, QUERIES, dtype=torch.bool), ValueError, r"3 axes \(3, 5, 5\).*from_batch_first"),
        (torch.ones(BATCH, 13, QUERIES, QUERIES, dtype=torch.bool), ValueError, r"\(3, 13, 5, 5\) does not fit"),
        (torch.ones(2, 1, 1, QUERIES, dtype=torch.bool), ValueError, r"\(2, 1, 1, 5\) does not fit"),
        (ones.bool().to("meta"), ValueError, rf"on meta.*on {x.device}.*mask\.to"),
    ]
    for mask, kind, message in bad:
        with pytest.raises(kind, match=message):
            layer(x, mask=mask)


BAD_SETTINGS = [
    ((6, 4), {}, r"4 heads do not divide d_model = 6.*\[1, 2, 3, 6\].*d_head"),
    ((6, 0), {}, "heads = 0.*at least 1"),
    ((6, -2), {}, "heads = -2.*at least 1"),
    ((0, 1), {}, "d_model = 0.*at least 1"),
    ((6, 2), {"d_head": 0}, "d_head = 0.*at least 1"),
    ((6, 2), {"kdim": 0}, "kdim = 0.*at least 1"),
    ((6, 2), {"vdim": -3}, "vdim = -3.*at least 1"),
    ((6, 2), {"bias": "qx"}, "bias = 'qx'.*True, False or some of the letters 'qkvo'"),
    ((6, 2), {"dropout": -0.1}, "dropout = -0.1.*at least 0 and below 1"),
    ((6, 2), {"dropout": 1.0}, "dropout = 1.0.*at least 0 and below 1"),
    ((6, 2), {"dropout": float("nan")}, "dropout = nan: it must be finite"),
]


@pytest.mark.parametrize(("sizes", "settings", "message"), BAD_SETTINGS, ids=lambda x: str(x)[:40])
def test_settings_that_make_no_layer_are_refused(reader, sizes, settings, message):
    with pytest.raises(ValueError, match=message):
        mha.MultiHeadAttention(*sizes, **settings)


@pytest.mark.parametrize("sizes", [(0,), (4, 0), (4, 2, -1)])
def test_one_head_refuses_widths_below_one(reader, sizes):
    with pytest.raises(ValueError, match="each must be at least 1"):
        mha.SelfAttention(*sizes)


def test_fewer_key_heads_must_be_shared_evenly(reader):
    for kv_heads in (0, 4, -1):
        with pytest.raises(ValueError, match=rf"kv_heads = {kv_heads} cannot be shared evenly by 6.*\[1, 2, 3, 6\]"):
            mha.GroupedAttention(12, 6, kv_heads)


def test_positions_within_one_sequence_refuse_another_one(reader):
    layer, x = mha.MultiHeadAttention(6, 1, positions=mha.RotaryPositions()), torch.randn(1, 3, 6)
    with pytest.raises(ValueError, match=r"RotaryPositions.*cross-attention"):
        layer(x, torch.randn(1, 4, 6))


# ---- small bugs that nothing else would see


@every(alone=True)
def test_a_query_that_is_its_own_key_may_be_causal(entry):
    layer, x = entry.build().eval(), entry.words()
    assert torch.equal(layer(x, x, is_causal=True), layer(x, is_causal=True))
    with pytest.raises(ValueError, match="is_causal with a separate key"):
        layer(x, x + 1, is_causal=True)


@every()
def test_weights_of_another_type_are_loaded_into_the_layers_own(entry):
    torch.manual_seed(1)
    layer, other = entry.build().eval().float(), entry.build().eval().double()
    layer.load_state_dict(other.state_dict())
    assert {x.dtype for x in layer.state_dict().values()} == {torch.float32}
    x = entry.words(dtype=torch.float64)
    wide = (x,) if entry.alone else (x, *entry.memory(other))
    found, right = layer(*(t.float() for t in wide)), other(*wide)
    assert found.dtype == torch.float32
    assert error(found.double(), right) < 1e-4


@every()
def test_dropout_and_a_mask_go_together(entry):
    layer = entry.build().train()
    if not hasattr(layer, "dropout"):
        pytest.skip("it has no dropout")
    layer.dropout = 0.3
    x = entry.words()
    memory = (x, x) if entry.alone else entry.memory(layer)
    keys = memory[0].shape[1]
    mask = torch.ones(x.shape[1], keys).bool()
    mask[:, -1] = False

    def read(memory, seed):
        torch.manual_seed(seed)
        given = (memory[0],) if entry.alone else (x, *memory)
        return layer(*given, mask=mask)[:, :-1]

    changed = [torch.cat([t[:, :-1], t[:, -1:] + 1], 1) for t in memory]
    assert torch.equal(read(memory, 0), read(changed, 0))
    assert not torch.equal(read(memory, 0), read(memory, 1))


@every()
def test_the_three_steps_are_the_layer_or_are_refused(entry):
    """Nobody who calls project, attend and merge gets another layer's numbers without a word."""
    layer, x = entry.build().eval(), entry.words()
    memory = () if entry.alone else entry.memory(layer)
    if isinstance(layer, mha.SelfAttention):
        pytest.skip("it has one step")
    gated = type(layer)._gates is not mha.Heads._gates
    with mha.watch(layer, "gates" if gated else "heads") as seen:
        y = layer(x, *memory)
    q, k, v = layer.project(x, *memory)
    if layer.beyond_steps is not None:
        with pytest.raises(ValueError, match=f"{type(layer).__name__}.* would leave out .* {layer.beyond_steps}"):
            layer.attend(q, k, v)
        return
    if gated:
        with pytest.raises(ValueError, match="gates = None"):
            layer.attend(q, k, v)
    heads = layer.attend(q, k, v, gates=seen.gates if gated else None)
    if isinstance(layer, mha.MergedAttention):  # its fourth step has a name
        heads = layer.add_average(heads, x, None, None)
    assert error(layer.merge(heads), y) < LIMIT


@every(crosses=True)
def test_a_cache_refuses_gradients_of_values_alone(entry):
    layer = entry.build().eval()
    if isinstance(layer, (mha.SelfAttention, mha.FeedbackAttention, mha.ComposableAttention)):
        pytest.skip("it takes no cache, or one that gradients pass, or another one")
    layer.requires_grad_(False)
    layer.W_v.weight.requires_grad_()
    refused = "the key is another sequence" if entry.constant_memory else "stores no gradients"
    with pytest.raises(ValueError, match=refused):
        layer(entry.words(), *entry.memory(layer), cache=layer.new_cache() if entry.own_cache else MemoryCache())
    if entry.alone and (entry.caches or entry.constant_memory):
        with pytest.raises(ValueError, match="stores no gradients"):
            layer(entry.words(), cache=layer.new_cache(), is_causal=True)


@every(alone=True)
def test_a_growing_cache_refuses_tokens_that_would_see_their_own_future(entry):
    if not (entry.caches or entry.constant_memory):
        pytest.skip("it keeps nothing that grows")
    layer, x = entry.build().eval(), entry.words()
    b, n, _ = x.shape
    with torch.no_grad():
        cache = layer.new_cache()
        for mask in (None, torch.ones(b, 1, 1, n, dtype=torch.bool)):
            with pytest.raises(ValueError, match=f"{n} new tokens came.*say is_causal=True"):
                layer(x, mask=mask, cache=cache)
        assert cache.length == 0
        whole = layer(x, is_causal=True)
        chunks = [layer(part, cache=cache, is_causal=True) for part in x.split([2, n - 2], 1)]
        assert error(torch.cat(chunks, 1), whole) < LIMIT
        assert error(layer(x[:, :1], cache=layer.new_cache()), whole[:, :1]) < LIMIT
        if entry.caches:  # each token of a prompt may look at all of it where a mask says so
            seen = layer(x, mask=torch.ones(n, n, dtype=torch.bool), cache=layer.new_cache())
            assert error(seen, layer(x)) < LIMIT


@pytest.mark.parametrize("made", sorted({type(one.build()) for one in LAYERS} - {mha.SelfAttention}, key=str))
def test_every_setting_reaches_its_place(made):
    """Each keyword alone, with numbers that nothing else has."""
    known = inspect.signature(made).parameters
    needed = {"d_model": 12, "heads": 4, "shared": 0, "chosen": 2, "kv_heads": 2, "d_shared": 9, "average": False}
    needed |= {"d_latent": 9, "k": 3}
    needed = {name: value for name, value in needed.items() if name in known}
    plain = made(**needed)
    seen = {
        "d_head": (5, lambda layer: layer.W_o.in_features // 4),
        "kdim": (7, lambda layer: layer.W_k.in_features),
        "vdim": (11, lambda layer: layer.W_v.in_features),
        "dropout": (0.25, lambda layer: layer.dropout),
        "bias": ("v", lambda layer: "".join(n for n in "qkvo" if getattr(layer, f"W_{n}").bias is not None)),
    }
    for name, (value, found) in seen.items():
        if name in known:
            assert found(plain) != value, name
            assert found(made(**needed, **{name: value})) == value, name
    if "positions" in known:
        positions = mha.LinearBias()
        assert made(**needed, positions=positions).positions is positions
        assert plain.positions is None
