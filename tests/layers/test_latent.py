"""Heads whose keys and values come from one latent: the paper's equations, both forms, the cache, conversions."""

import copy
import math

import pytest
import torch
from oracle import LIMIT, error
from test_cache import feed
from test_cost import Peak, counted, nbytes, peak
from torch import nn

import mha
from mha.layers import LatentCache, MemoryCache, Part, compress
from mha.systems import tensor_parallel

KINDS = {
    "plain words": {},
    "no bias": {"bias": False},
    "rotated": {"d_rotary": 4, "bias": False},
    "rotated, biases": {"d_rotary": 2, "d_head": 3},
    "compressed queries": {"d_query": 7, "d_rotary": 4, "bias": "o"},
    "norms": {"norm": True, "d_query": 7, "d_rotary": 4},
    "norm of the latent": {"norm": True},
}
every_kind = pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)


def made(settings, **more):
    """A layer whose every weight is random, the scales of norms too."""
    layer = mha.LatentAttention(12, 3, 5, **(settings | more)).eval()
    for weight in layer.parameters():
        nn.init.normal_(weight, 0.3, 0.5)
    return layer


# ---- the formula, in loops


def normed(x, norm):
    return x if norm is None else norm.weight * x / (x.square().mean() + 1e-6).sqrt()


def rotated(x, place):
    """Turn neighboring channels by place · 10000^(−2c/d), one pair at a time."""
    out = []
    for c in range(len(x) // 2):
        angle = place * 10000.0 ** (-2 * c / len(x))
        a, b = x[2 * c], x[2 * c + 1]
        out += [a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)]
    return torch.stack(out) if out else x[:0]


def by_hand(layer, x, memory, mask):
    """One text, one head, one query, one key at a time, in the expanded form, as the paper's equations stand."""
    bias = lambda linear, rows: 0 if linear.bias is None else linear.bias[rows]  # noqa: E731
    output = []
    for b in range(len(x)):
        words = []
        for i in range(x.shape[1]):
            asked = x[b, i] if layer.d_query is None else normed(layer.W_down_q.weight @ x[b, i], layer.norm_query)
            reads = []
            for h in range(layer.heads):
                rows = slice(h * layer.d_head, (h + 1) * layer.d_head)
                q, places = layer.W_q.weight[rows] @ asked + bias(layer.W_q, rows), layer.d_rotary
                if places:
                    own = layer.W_rotary_q.weight[h * places : (h + 1) * places] @ asked
                    q = torch.cat([q, rotated(own, i)])
                powers, values = [], []
                for j in range(memory.shape[1]):
                    if mask[i, j]:
                        c = layer.W_down.weight @ memory[b, j]
                        c = normed(c, layer.norm_latent)
                        k = layer.W_k.weight[rows] @ c + bias(layer.W_k, rows)
                        if places:
                            k = torch.cat([k, rotated(layer.W_rotary_k.weight @ memory[b, j], j)])
                        powers.append((q @ k / math.sqrt(layer.d_head + places)).exp())
                        values.append(layer.W_v.weight[rows] @ c + bias(layer.W_v, rows))
                total = sum(powers)
                read = [p / total * v for p, v in zip(powers, values, strict=True)]
                reads.append(sum(read) if read else torch.zeros(layer.d_head))
            words.append(layer.W_o.weight @ torch.cat(reads) + bias(layer.W_o, slice(None)))
        output.append(torch.stack(words))
    return torch.stack(output)


def slopes(layer, x, run):
    x = x.detach().requires_grad_()
    y = run(x)
    weight = torch.linspace(-1, 2, y.numel()).view_as(y)
    given = [x, *layer.parameters()]
    found = torch.autograd.grad((y * weight).sum(), given, allow_unused=True)
    return y, [torch.zeros_like(p) if g is None else g for g, p in zip(found, given, strict=True)]


def someone_sees_nothing(n):
    mask = torch.rand(n, n) < 0.6
    mask[2] = False
    return mask


@every_kind
@pytest.mark.parametrize("absorb", [False, True], ids=["expanded", "absorbed"])
def test_both_forms_are_the_equations_in_value_and_gradient(settings, absorb):
    layer, x, mask = made(settings), torch.randn(2, 5, 12), someone_sees_nothing(5)
    y, found = slopes(layer, x, lambda x: layer(x, mask=mask, absorb=absorb))
    right, wanted = slopes(layer, x, lambda x: by_hand(layer, x, x, mask))
    assert error(y, right) < 1e-10
    assert error(found, wanted) < 1e-10


@pytest.mark.parametrize("name", ["plain words", "no bias", "norm of the latent"])
@pytest.mark.parametrize("absorb", [False, True], ids=["expanded", "absorbed"])
def test_another_sequence_is_read_by_the_equations_too(name, absorb):
    layer, x, memory = made(KINDS[name]), torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    everything = torch.ones(5, 7, dtype=torch.bool)
    assert error(layer(x, memory, absorb=absorb), by_hand(layer, x, memory, everything)) < 1e-10
    cache = MemoryCache()
    with torch.no_grad():
        for word in x.split((1, 3, 1), 1):
            assert error(layer(word, memory, cache=cache), layer(word, memory)) < LIMIT


# ---- two forms, one result


@every_kind
@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"mask": mha.padding_mask([5, 0, 2])}], ids=str)
def test_absorbed_is_expanded_and_whoever_watches_sees_the_same(settings, how):
    layer, x = made(settings), torch.randn(3, 5, 12)
    right, wanted = slopes(layer, x, lambda x: layer(x, **how))
    y, found = slopes(layer, x, lambda x: layer(x, **how, absorb=True))
    assert error(y, right) < LIMIT
    assert error(found, wanted) < 1e-11
    with mha.watch(layer) as expanded:
        watched = layer(x, **how)
    with mha.watch(layer) as absorbed:
        assert error(layer(x, **how, absorb=True), watched) < LIMIT
    assert error(watched, right) < LIMIT
    for place in ("scores", "weights", "heads"):
        assert error(absorbed.all(place)[0], expanded.all(place)[0]) < LIMIT, place


def test_an_edit_reaches_both_forms():
    layer, x = made({}), torch.randn(2, 5, 12)
    with mha.edit(layer, weights=lambda w: w * 0.5, heads=lambda z: z + 1):
        assert error(layer(x, absorb=True), layer(x)) < LIMIT


@pytest.mark.parametrize("bias", [True, False])
def test_dropout_drops_the_same_weights_in_both_forms(bias):
    layer, x = made({"bias": bias}, dropout=0.4).train(), torch.randn(2, 5, 12)
    outputs = []
    with mha.watch(layer, "weights"):  # the explicit formula: one draw for each weight
        for absorb in (False, True):
            torch.manual_seed(3)
            outputs.append(layer(x, absorb=absorb))
    assert error(outputs[1], outputs[0]) < LIMIT


@pytest.mark.parametrize("absorb", [False, True])
def test_both_forms_run_on_the_fused_kernel(absorb, monkeypatch):
    calls, kernel = [], torch.nn.functional.scaled_dot_product_attention

    def counting(q, k, v, *args, **how):
        calls.append((q.shape[-1], k.shape[-1], v.shape[-1]))
        return kernel(q, k, v, *args, **how)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counting)
    made({"d_rotary": 4, "bias": False})(torch.randn(2, 5, 12), absorb=absorb)
    assert calls == [(9, 9, 9)] if absorb else calls == [(8, 8, 8)]


@torch.no_grad()
def test_behind_a_cache_the_form_with_fewer_operations_runs():
    layer = mha.LatentAttention(12, 2, 9, d_head=6, bias=False)
    ran = []
    for name in ("read_expanded", "read_absorbed"):
        real = getattr(layer, name)
        setattr(layer, name, lambda *a, real=real, name=name: ran.append(name[5:]) or real(*a))
    x, cache = torch.randn(1, 130, 12), layer.new_cache(130)
    layer(x[:, :100], cache=cache, is_causal=True)
    layer(x[:, 100:101], cache=cache, is_causal=True)
    layer(x[:, 101:102], cache=cache, is_causal=True, absorb=False)
    layer(x[:, 102:130], cache=cache, is_causal=True)
    layer(x[:, :1], is_causal=True)
    assert ran == ["expanded", "absorbed", "expanded", "expanded", "expanded"]
    assert not layer.absorbs(100, 100)
    assert layer.absorbs(14, 130)


# ---- the cache


@torch.no_grad()
def test_the_cache_holds_the_normed_latent_and_one_rotated_key():
    layer, x = made(KINDS["norms"]), torch.randn(2, 6, 12)
    cache = layer.new_cache(8)
    feed_into(layer, x, cache, (4, 1, 1))
    rows = cache._k[:, :, :6]
    assert rows.shape == (2, 1, 6, 5 + 4)
    for b in range(2):
        for n in range(6):
            latent = normed(layer.W_down.weight @ x[b, n], layer.norm_latent)
            key = rotated(layer.W_rotary_k.weight @ x[b, n], n)
            assert error(rows[b, 0, n], torch.cat([latent, key])) < LIMIT
    assert cache.bytes == layer.cost(2, 1, 8, fresh=1).cache == 2 * 8 * (5 + 4) * 8
    keys, values = cache.update(torch.randn(2, 1, 1, 9), torch.randn(2, 1, 1, 5))
    assert keys.data_ptr() == values.data_ptr()


def feed_into(layer, x, cache, chunks):
    parts = [
        layer(part, mask=cache.mask(part.shape[1]), is_causal=True, cache=cache) for part in x.split(tuple(chunks), 1)
    ]
    return torch.cat(parts, 1)


@every_kind
@torch.no_grad()
def test_a_prompt_in_pieces_with_padding_in_front_reads_as_each_text_alone(settings):
    layer, x = made(settings), torch.randn(3, 9, 12)
    whole = layer(x, is_causal=True)
    for chunks in ((9,), (4, 3, 1, 1), (1,) * 9):
        assert error(feed(layer, x, chunks, is_causal=True), whole) < LIMIT
        padding = [0, 3, 5]
        found = feed_into(layer, x, LatentCache(11, padding), chunks)
        for b, skipped in enumerate(padding):
            alone = layer(x[b : b + 1, skipped:], is_causal=True)
            assert error(found[b : b + 1, skipped:], alone) < LIMIT


@torch.no_grad()
def test_a_refused_call_leaves_the_rows_as_they_were(reader):
    layer, x = made(KINDS["rotated"]), torch.randn(2, 5, 12)
    cache = layer.new_cache(4)
    layer(x[:, :3], cache=cache, is_causal=True)
    before = cache._k.clone()
    for bad, message in (
        ({"cache": cache, "is_causal": True}, "holds 4 positions, but 5 were fed"),
        ({"cache": cache, "mask": torch.ones(2, 4, dtype=torch.bool)}, r"has 4 columns, but there are 5 keys"),
        ({"cache": cache, "key": x}, "is another sequence"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(x[:, 3:], **bad)
        assert cache.length == 3
        assert torch.equal(cache._k[:, :, :3], before[:, :, :3])
    other = copy.deepcopy(layer)
    with pytest.raises(ValueError, match="another layer filled this cache"):
        other(x[:, 3:4], cache=cache, is_causal=True)
    assert error(layer(x[:, 3:4], cache=cache, is_causal=True), layer(x[:, :4], is_causal=True)[:, 3:]) < LIMIT


# ---- why the places have channels of their own


def test_a_rotation_between_queries_and_latents_would_make_another_matrix_for_each_distance():
    torch.manual_seed(0)
    w_q, w_k, rotate = torch.randn(8, 12), torch.randn(8, 5), mha.RotaryPositions().rotate

    def merged(i, j):
        at = lambda matrix, place: rotate(matrix.T[None, :, None], place)[0, :, 0]  # noqa: E731
        return at(w_q, i) @ at(w_k, j).T

    assert error(merged(7, 4), merged(3, 0)) < LIMIT
    assert error(merged(3, 0), merged(0, 0)) > 0.2


# ---- neutral settings and conversions


@pytest.mark.parametrize("bias", [True, False])
def test_a_latent_as_wide_as_a_word_is_a_plain_layer_with_half_the_cache(bias):
    plain = mha.MultiHeadAttention(12, 4, bias=bias)
    layer, x = mha.LatentAttention.from_plain(plain), torch.randn(2, 7, 12)
    with torch.no_grad():
        for absorb in (False, True):
            assert error(layer(x, is_causal=True, absorb=absorb), plain(x, is_causal=True)) < LIMIT
        cache = layer.new_cache(7)
        feed_into(layer, x, cache, (5, 1, 1))
    assert torch.equal(cache._k[:, 0], x)  # it keeps what came in
    assert 2 * layer.cost(2, 1, 7, fresh=1).cache == plain.cost(2, 1, 7, fresh=1).cache


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_shared_key_heads_are_a_latent_of_both_their_widths(groups, bias):
    plain = mha.GroupedAttention(32, 4, groups, d_head=3, bias=bias)
    for weight in plain.parameters():
        nn.init.normal_(weight)
    x = torch.randn(2, 6, 32)
    right = plain(x, is_causal=True)
    for absorb in (False, True):
        exact = compress(plain, 2 * groups * 3)(x, is_causal=True, absorb=absorb)
        assert error(exact, right) < LIMIT
    assert error(compress(plain, 2 * groups * 3 - 1)(x, is_causal=True), right) > 1e-3
    assert compress(plain, 6).cost(1, 1, 9, fresh=1).cache * groups == plain.cost(1, 1, 9, fresh=1).cache


def test_a_compressed_layer_keeps_what_is_not_compressed():
    plain = mha.MultiHeadAttention(12, 3, bias="qvo", dropout=0.2, positions=mha.LinearBias()).train()
    nn.init.normal_(plain.W_v.bias)
    layer, x = compress(plain, 12), torch.randn(2, 6, 12)
    assert layer.training
    assert (layer.dropout, layer.positions, layer.d_head) == (0.2, plain.positions, 4)
    assert [getattr(layer, f"W_{n}").bias is None for n in "qkvo"] == [False, True, False, False]
    assert error(layer.eval()(x), plain.eval()(x)) < LIMIT
    assert error(compress(plain, 2).eval()(x), plain(x)) > error(compress(plain, 11).eval()(x), plain(x)) > 1e-3
    plain.half()
    assert compress(plain, 5).W_k.weight.dtype == torch.float16


@pytest.mark.parametrize("absorb", [False, True])
def test_a_layer_compressed_for_its_words_errs_less_on_other_words_like_them(absorb):
    torch.manual_seed(0)
    plain = mha.GroupedAttention(24, 4, 2)
    for weight in plain.parameters():
        nn.init.normal_(weight, std=0.2)  # scores near 1: a softmax that chooses one word shows no small errors
    shape = torch.randn(24, 24) * torch.logspace(0, -1, 24)  # most of a word lies in few directions
    seen, other = torch.randn(8, 50, 24) @ shape.T, torch.randn(8, 5, 24) @ shape.T
    right = plain(other)
    for d_latent in (6, 12, 18):
        one, two = compress(plain, d_latent), compress(plain, d_latent, seen)
        of_weights, of_words = ((new.eval()(other, absorb=absorb) - right).norm() for new in (one, two))
        assert of_words < 0.95 * of_weights
    assert error(compress(plain, 24, seen)(other, absorb=absorb), right) < LIMIT


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda: mha.MultiHeadAttention(12, 3, positions=mha.RotaryPositions()), "inside, which rotate the keys"),
        (lambda: mha.MultiHeadAttention(12, 3, kdim=5), "no layer of plain heads over one sequence"),
        (lambda: mha.EntmaxAttention(12, 3), "EntmaxAttention is no layer of plain heads"),
        (lambda: mha.LatentAttention(12, 3, 12), "LatentAttention is no layer of plain heads"),
        (lambda: Doubled(12, 3), "Doubled computes something other than plain heads"),
    ],
)
def test_what_cannot_be_compressed_is_refused(reader, layer, message):
    with pytest.raises(ValueError, match=message):
        compress(layer(), 5)


class Doubled(mha.MultiHeadAttention):
    def forward(self, *args, **how):
        return 2 * super().forward(*args, **how)


@pytest.mark.parametrize("d_latent", [0, 13])
def test_a_width_out_of_range_is_refused(reader, d_latent):
    with pytest.raises(ValueError, match=f"d_latent = {d_latent}: 1 to 12"):
        compress(mha.MultiHeadAttention(12, 3), d_latent)


def test_words_that_the_layer_does_not_read_are_refused(reader):
    with pytest.raises(ValueError, match=r"tokens of shape \(2, 5, 11\): give tokens of 12 numbers"):
        compress(mha.MultiHeadAttention(12, 3), 4, torch.randn(2, 5, 11))


def test_from_plain_refuses_inputs_of_other_widths(reader):
    with pytest.raises(ValueError, match=r"kdim = 5, vdim = 12, d_model = 12: keys and values come from one latent"):
        mha.LatentAttention.from_plain(mha.MultiHeadAttention(12, 3, kdim=5))


# ---- fewer heads, costs


@every_kind
def test_fewer_heads_share_what_all_heads_shared(settings):
    layer, x = made(settings), torch.randn(2, 5, 12)
    smaller = layer.take_heads(iter([2, 0]))
    keep = torch.tensor([1.0, 0.0, 1.0])[:, None, None]
    with mha.edit(layer, heads=lambda z: z * keep):
        for absorb in (False, True):
            assert error(smaller(x, absorb=absorb), layer(x, absorb=absorb)) < LIMIT
    assert smaller.W_down.weight.shape == layer.W_down.weight.shape


def test_processes_cannot_share_a_latent(reader):
    with pytest.raises(ValueError, match=r"'W_down'.*Keep it whole"):
        tensor_parallel.check_divisible(made({}), 3)


@every_kind
def test_costs_of_both_forms_are_those_of_the_counter_and_of_the_tensors(settings):
    layer = made(settings)
    for b, i in ((2, 7), (1, 40)):
        x = torch.randn(b, i, 12)
        for absorb in (False, True):
            cost = layer.cost(b, i, absorb=absorb)
            with mha.watch(layer):
                assert cost.flops == counted(lambda: layer(x, absorb=absorb))  # noqa: B023
            assert cost.peak == pytest.approx(peak(layer, x, absorb=absorb), rel=0.08)
            if i == 40:  # the scores are the largest tensors by far
                with mha.watch(layer):
                    assert layer.cost(b, i, stored=True, absorb=absorb).peak == pytest.approx(
                        peak(layer, x, absorb=absorb), rel=0.2
                    )


@every_kind
@torch.no_grad()
def test_the_peak_behind_a_cache_is_that_of_the_tensors_alive(settings):
    layer, x = made(settings), torch.randn(2, 40, 12)
    cache = layer.new_cache(40)
    layer(x[:, :39], is_causal=True, cache=cache)
    last = x[:, 39:].clone()
    for absorb in (True, False):
        cache.length = 39
        with Peak(last, *layer.parameters(), cache._k, cache._v) as found:
            layer(last, is_causal=True, cache=cache, absorb=absorb)
        assert layer.cost(2, 1, 40, fresh=1, absorb=absorb).peak == pytest.approx(found.most, rel=0.08)


@pytest.mark.parametrize("stored", [False, True])
def test_absorbed_heads_read_rows_once_and_pass_two_matrices(stored):
    b, h, i, j, d, narrow, rotated = 2, 3, 5, 7, 4, 5, 2
    layer = made({"d_rotary": rotated})
    parts = layer.cost(b, i, j, absorb=True, stored=stored).parts
    queries, asked = (b, h, i, d), (b, h, i, narrow + rotated)
    for name in ("W_k", "W_v"):  # a query becomes as wide as a latent, a read as narrow as a head
        assert parts[name] == Part(
            2 * math.prod(queries) * narrow, nbytes(queries, (b, h, i, narrow), (h, narrow + 1, d))
        )
    rows, scores = (b, j, narrow + rotated), [(b, h, i, j)] * (2 if stored else 0)
    assert parts["scores"].moved == nbytes(asked, rows, *scores)
    again = [(b, j, narrow)] if stored else []  # otherwise the scores have just read them
    assert parts["read"].moved == nbytes((b, h, i, narrow), *again, *scores)


@pytest.mark.parametrize(("d_latent", "d_head"), [(1, 20), (40, 20), (40, 4)])
def test_the_peak_of_absorbed_heads_that_are_wider_or_narrower_than_the_latent(d_latent, d_head):
    layer, x = mha.LatentAttention(12, 3, d_latent, d_head=d_head), torch.randn(2, 33, 12)
    assert layer.cost(2, 33, absorb=True).peak == pytest.approx(peak(layer, x, absorb=True), rel=0.08)


def test_the_sizes_of_deepseek_v2():
    with torch.device("meta"):
        layer = mha.LatentAttention(
            5120, 128, 512, d_rotary=64, d_query=1536, d_head=128, norm=True, bias=False
        ).bfloat16()
        plain = mha.MultiHeadAttention(5120, 128, d_head=128, bias=False).bfloat16()
    one, other = (x.cost(1, 1, 4096, fresh=1) for x in (layer, plain))
    assert one.cache == 4096 * 2 * 576
    assert other.cache == 4096 * 2 * 32768
    assert other.cache / one.cache == pytest.approx(56.9, abs=0.05)
    matrices = 5120 * 1536 + 1536 * 128 * (128 + 64) + 5120 * (512 + 64) + 2 * 512 * 128 * 128 + 128 * 128 * 5120
    assert one.parameters == matrices + 512 + 1536  # and the scales of two norms
    assert one.parts["scores"].flops == 3 * layer.cost(1, 1, 4096, fresh=1, absorb=False).parts["scores"].flops


# ---- bad input


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"d_latent": 0}, ValueError, "d_latent = 0: it must be at least 1"),
        ({"d_latent": 2.5}, TypeError, "d_latent = 2.5: it must be a whole number"),
        ({"d_rotary": -2}, ValueError, "d_rotary = -2: it must be at least 0"),
        ({"d_rotary": 3}, ValueError, "d_rotary = 3: rotary channels are rotated in pairs"),
        ({"d_query": 0}, ValueError, "d_query = 0: it must be at least 1"),
        ({"norm": 1}, TypeError, "norm = 1: it must be True or False"),
        ({"positions": mha.RotaryPositions()}, ValueError, r"RotaryPositions rotate .*d_rotary = 0 leaves no channels"),
        ({"positions": mha.LinearBias(), "d_rotary": 2}, ValueError, "LinearBias rotate nothing: give 0"),
    ],
)
def test_settings_that_make_no_layer_are_refused(reader, settings, kind, message):
    with pytest.raises(kind, match=message):
        mha.LatentAttention(**({"d_model": 12, "heads": 3, "d_latent": 5} | settings))


def test_a_value_of_its_own_and_another_sequence_with_places_are_refused(reader):
    layer, x = made({}), torch.randn(2, 5, 12)
    with pytest.raises(ValueError, match=r"value \(2, 5, 12\) is another tensor than key .*leave value out"):
        layer(x, x, x + 1)
    with pytest.raises(ValueError, match=r"query \(2, 5, 12\) and key \(1, 5, 12\) must have one batch size"):
        layer(x, x[:1])
    with pytest.raises(ValueError, match=r"RotaryPositions.*cross-attention"):
        made(KINDS["rotated"])(x, torch.randn(2, 4, 12))
    with pytest.raises(ValueError, match=r"value \(2, 4, 12\) is another tensor than key \(2, 5, 12\)"):
        layer.project(x, x, torch.randn(2, 4, 12))
    with pytest.raises(TypeError, match="absorb = 1: it must be True or False"):
        layer(x, absorb=1)
    with pytest.raises(TypeError, match=r"cache = 3: give layer\.new_cache"):
        layer(x, cache=3)
    with pytest.raises(ValueError, match="fresh = 6: at least 1, and 0 to 5 fresh keys"):
        layer.cost(1, 1, 5, fresh=6)
