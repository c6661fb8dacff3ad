"""Heads that a router chooses for each query."""

import copy
import math

import pytest
import torch
from oracle import error
from test_cost import Peak
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import mha
from mha.analysis import leaks, prune_heads
from mha.layers import HeadRouter, MemoryCache, NormRouter, balance_loss, choose
from mha.models import EncoderLayer, Stack

B, N, D_MODEL, HEADS, WIDTH = 2, 9, 10, 5, 4
SPLITS = [(2, 2), (1, 3), (0, 2), (0, 5), (5, 0), (4, 1), (3, 1)]
KINDS = ["released", "paper", "norms"]


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def routed(shared=2, chosen=2, gates="released", skips=True, **sizes):
    torch.manual_seed(3)
    layer = mha.RoutedAttention(D_MODEL, HEADS, shared, chosen, gates=gates, d_head=WIDTH, **sizes).double().eval()
    layer.skip_from = 0 if skips else 10**9
    return layer


# ---- the equations, once more and independently


def softmax(numbers):
    powers = [math.exp(x) for x in numbers]
    return [p / sum(powers) for p in powers]


def gates_by_hand(layer, word, query, kind):
    """The gates of one query as plain numbers: word (m,), query (h, d)."""
    shared, chosen = layer.shared, layer.chosen
    routed = layer.heads - shared
    if kind == "norms":
        lengths = [math.hypot(*query[h].tolist()) for h in range(shared, layer.heads)]
        best = sorted(range(routed), key=lambda h: -lengths[h])[:chosen]
        return [1.0] * shared + [float(h in best) for h in range(routed)]
    own = softmax((layer.router.W_s.weight @ word).tolist()) if shared else []
    all_routed = softmax((layer.router.W_r.weight @ word).tolist()) if routed else []
    best = sorted(range(routed), key=lambda h: -all_routed[h])[:chosen]
    kept = [p if h in best else 0.0 for h, p in enumerate(all_routed)]
    first, second = softmax((layer.router.W_h.weight @ word).tolist()) if shared and routed else (1.0, 1.0)
    if kind == "released":
        both = 2 if shared and routed else 1
        own = [shared * p for p in own]
        kept = [chosen * p / sum(kept) for p in kept]
        first, second = both * first, both * second
    return [first * p for p in own] + [second * p for p in kept]


def dense(layer, x, kind, memory=None, see=None):
    """The weighted sum over heads of softmax(q kᵀ / √d) v W_o, head by head and word by word."""
    memory, y = x if memory is None else memory, []
    d = layer.d_head
    blocks = layer.W_o.weight.split(d, 1)
    for words, others in zip(x, memory, strict=True):
        q, k, v = layer.W_q(words), layer.W_k(others), layer.W_v(others)
        rows = []
        for i, word in enumerate(words):
            gates = gates_by_hand(layer, word, q[i].view(-1, d), kind)
            row = layer.W_o.bias
            for h, gate in enumerate(gates):
                part = slice(h * d, (h + 1) * d)
                scores = k[:, part] @ q[i, part] / math.sqrt(d)
                if see is not None:
                    scores = scores.masked_fill(~see[i], -math.inf)
                row = row + gate * (blocks[h] @ (scores.softmax(0) @ v[:, part]))
            rows.append(row)
        y.append(torch.stack(rows))
    return torch.stack(y)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shared", "chosen"), SPLITS)
@torch.no_grad()
def test_it_is_the_weighted_sum_of_the_paper(shared, chosen, kind, skips):
    layer, x = routed(shared, chosen, kind, skips), noise(B, N, D_MODEL)
    assert error(layer(x), dense(layer, x, kind)) < 1e-10
    past = torch.ones(N, N, dtype=torch.bool).tril()
    assert error(layer(x, is_causal=True), dense(layer, x, kind, see=past)) < 1e-10
    memory = noise(B, 4, D_MODEL, seed=1)
    assert error(layer(x, memory), dense(layer, x, kind, memory)) < 1e-10


def test_gates_of_the_released_code_sum_to_the_heads_of_both_groups_and_those_of_the_paper_to_less_than_one():
    x = noise(B, N, D_MODEL)
    for kind, lowest, highest in (("released", 4, 4), ("paper", 0, 1)):
        layer = routed(2, 2, kind)
        with torch.no_grad():
            layer.router.W_h.weight.zero_()
        with mha.watch(layer, "gates") as seen:
            layer(x)
        sums = seen.gates.sum(1)
        assert lowest - 1e-12 <= sums.min()
        assert sums.max() <= highest + 1e-12
        assert ((seen.gates != 0).sum(1) == 4).all()


# ---- the neutral setting


@pytest.mark.parametrize(("shared", "gates"), [(0, "released"), (2, "released"), (4, "released"), (2, "norms")])
def test_all_heads_and_a_router_of_zeros_are_plain_attention(shared, gates):
    plain = mha.MultiHeadAttention(8, 4, d_head=3, kdim=5, vdim=7, bias="qo", dropout=0.2).double().eval()
    layer = mha.RoutedAttention.from_plain(plain, shared, gates=gates)
    x, key, value = noise(2, 6, 8), noise(2, 3, 5), noise(2, 3, 7)
    assert error(layer(x, key, value), plain(x, key, value)) < 1e-12
    assert layer.dropout == 0.2
    assert not layer.training


def test_in_the_units_of_the_paper_it_is_not_plain_but_with_open_gates_it_is():
    plain, x = mha.MultiHeadAttention(8, 4), noise(2, 6, 8)
    layer = mha.RoutedAttention.from_plain(plain, 2, gates="paper")
    with mha.watch(layer, "gates") as seen:
        assert error(layer(x), plain(x)) > 0.1
    assert (seen.gates - 0.25).abs().max() < 1e-12  # half of each group, for each of its two heads
    with mha.edit(layer, gates=torch.ones_like):
        assert error(layer(x), plain(x)) < 1e-12


def test_a_converted_layer_that_must_choose_has_something_to_choose_by():
    layer = mha.RoutedAttention.from_plain(mha.MultiHeadAttention(8, 4), 1, 2)
    assert layer.router.W_r.weight.abs().min() > 0
    assert layer.router.W_s.weight.abs().max() == layer.router.W_h.weight.abs().max() == 0


# ---- what is left out changes nothing


MASKS = {
    "none": None,
    "query and key": noise(N, N) > -0.5,
    "padding": mha.padding_mask([2, 7], N),
    "per head": noise(1, HEADS, N, N) > 0,
    "per head and key": noise(B, HEADS, 1, N) > 0,
    "everything": noise(B, HEADS, N, N) > 0,
    "an empty row": torch.ones(N, N, dtype=torch.bool).tril(-1),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("gates", KINDS)
@pytest.mark.parametrize(("shared", "chosen"), [(2, 2), (0, 3), (5, 0)])
def test_leaving_out_gives_what_computing_all_gives(shared, chosen, gates, is_causal, mask):
    found = []
    for skips in (False, True):
        layer, x = routed(shared, chosen, gates, skips), noise(B, N, D_MODEL).requires_grad_()
        y = layer(x, mask=mask, is_causal=is_causal)
        pull = noise(*y.shape, seed=1)
        found.append((y, *torch.autograd.grad(y, [x, *layer.parameters()], pull)))
    assert error(found[1], found[0]) < 1e-12


@pytest.mark.parametrize("piece", [1, 2, 5, 128])
def test_the_pieces_of_the_past_may_have_any_size(monkeypatch, piece):
    monkeypatch.setattr("mha.functional.dispatch.PIECE", piece)
    x = noise(B, 50, D_MODEL)
    assert error(routed()(x, is_causal=True), routed(skips=False)(x, is_causal=True)) < 1e-12


@torch.no_grad()
def test_leaving_out_behind_a_cache():
    x, memory = noise(B, N, D_MODEL), noise(B, 4, D_MODEL, seed=1)
    for positions in (None, mha.RotaryPositions(), mha.LinearBias()):
        layer = routed(positions=positions, gates="norms") if positions else routed()
        layer.positions = positions
        cache = layer.new_cache(N)
        fed = torch.cat([layer(part, cache=cache, is_causal=True) for part in x.split((4, 1, 3, 1), 1)], 1)
        assert error(fed, layer(x, is_causal=True)) < 1e-12
    layer, cache = routed(), MemoryCache()
    fed = torch.cat([layer(part, memory, cache=cache) for part in x.split(1, 1)], 1)
    assert error(fed, layer(x, memory)) < 1e-12


def test_nothing_leaks_where_heads_are_left_out():
    found = leaks(routed(), noise(2, 6, D_MODEL), is_causal=True, cache=mha.KeyValueCache)
    assert not found
    assert set(found.sees) == {"train", "eval", "cached"}
    assert not any(found.blind.values())


def test_dropout_drops_in_training_where_heads_are_left_out():
    x = noise(B, N, D_MODEL)
    for is_causal in (False, True):
        layer = routed(0, 2, dropout=0.5)
        whole = layer(x, is_causal=is_causal)
        layer.train()
        drawn = torch.stack([layer(x, is_causal=is_causal) for _ in range(150)])
        assert error(drawn[0], whole) > 1e-3
        assert error(drawn.mean(0), whole) < 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_leaving_out_works_in_fewer_bits(dtype):
    mask = mha.padding_mask([N, 0])
    for is_causal in (False, True):
        layer, x = routed().to(dtype), noise(B, N, D_MODEL).to(dtype)
        y = layer(x, mask=mask, is_causal=is_causal)
        assert torch.equal(y[1], layer.W_o.bias.expand(N, -1))
        layer.skip_from = 10**9
        assert error(y.double(), layer(x, mask=mask, is_causal=is_causal).double()) < 30 * torch.finfo(dtype).eps


@torch.no_grad()
def test_nothing_comes_from_a_head_that_is_not_chosen():
    """Its keys are NaN: whoever compares with them, and multiplies by 0 afterwards, has NaN."""
    for is_causal in (False, True):
        layer, x = routed(3, 1), noise(B, N, D_MODEL)
        with mha.watch(layer, "gates") as seen:
            layer(x, is_causal=is_causal)
        layer.W_k.weight[4 * WIDTH :] = torch.nan
        untouched = seen.gates[:, 4] == 0
        assert 0 < untouched.sum() < untouched.numel()
        assert torch.equal(layer(x, is_causal=is_causal).isfinite().all(-1), untouched)
        layer.skip_from = 10**9
        assert layer(x, is_causal=is_causal).isnan().any(-1).all()


# ---- what it costs

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def counted(call):
    """Torch's counter, told what the fused kernel of a CPU does."""
    kernel = {FUSED: lambda q, k, v, *_args, **_kwargs: sdpa_flop_count(q, k, v)}
    with FlopCounterMode(display=False, custom_mapping=kernel) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


def filled_up(asked):
    """The queries for which routed heads (b, r) read in vain, to be as many as the busiest, of all or of its own."""
    together = (asked.max() - asked).sum()
    apart = (asked.amax(0) - asked).sum()
    return int(together if together <= 0.2 * asked.sum() else apart)


@pytest.mark.parametrize(("shared", "chosen"), [(2, 2), (0, 3), (8, 0), (3, 5), (1, 1)])
@pytest.mark.parametrize("gates", KINDS)
def test_operations_are_those_of_the_counter(shared, chosen, gates):
    layer = mha.RoutedAttention(24, 8, shared, chosen, gates=gates).eval()
    layer.skip_from = 200**2
    for n in (20, 260):  # all heads computed; heads left out
        x = torch.randn(2, n, 24)
        with mha.watch(layer, "gates") as seen:
            found = counted(lambda: layer(x))  # noqa: B023
        filled = filled_up((seen.gates[:, shared:] != 0).sum(2)) if n == 260 and chosen < 8 - shared else 0
        assert found == layer.cost(2, n).flops + 4 * 3 * n * filled
        memory = torch.randn(2, 300, 24)
        assert counted(lambda: layer(x, memory)) == layer.cost(2, n, 300).flops + 4 * 3 * 300 * filled  # noqa: B023
    plain = mha.MultiHeadAttention(24, 8).cost(2, 260)
    for name in ("scores", "read"):
        assert layer.cost(2, 260).parts[name].flops * 8 == plain.parts[name].flops * (shared + chosen)
        assert layer.cost(2, 20).parts[name].flops == layer.cost(2, 20, stored=True).parts[name].flops


@torch.no_grad()
def test_heads_with_unequal_work_are_not_filled_up():
    """One head is asked by all, the others by a third: filled up, each of them would read for all."""
    layer, x = mha.RoutedAttention(24, 8, 0, 2).eval(), torch.randn(2, 300, 24)
    for part in layer.router.parameters():
        part.normal_()
    favorite = torch.zeros(24)
    favorite[0], x[..., 0] = 9, 3
    layer.router.W_r.weight[4] = favorite
    layer.skip_from = 0
    with mha.watch(layer, "gates") as seen:
        found = counted(lambda: layer(x))
    asked = (seen.gates != 0).sum(2)
    assert (asked[:, 4] == 300).all()
    assert found == layer.cost(2, 300).flops + 4 * 3 * 300 * filled_up(asked)
    assert found < 1.1 * layer.cost(2, 300).flops
    every = copy.deepcopy(layer)
    every.skip_from = 10**9
    for is_causal in (False, True):
        assert error(layer(x, is_causal=is_causal), every(x, is_causal=is_causal)) < 1e-5


def test_hidden_futures_cost_less_than_counted():
    layer, x = mha.RoutedAttention(24, 8, 0, 4).eval(), torch.randn(1, 1500, 24)
    parts, whole = layer.cost(1, 1500).parts, counted(lambda: layer(x))
    saved = whole - counted(lambda: layer(x, is_causal=True))
    assert 0.35 < saved / (parts["scores"].flops + parts["read"].flops) < 0.5


def test_the_router_has_a_row_for_each_head_and_two_more():
    for shared, extra in ((2, 8 + 2), (0, 8), (8, 8)):
        layer, plain = mha.RoutedAttention(24, 8, shared, 8 - shared), mha.MultiHeadAttention(24, 8)
        assert layer.cost(1, 1).parameters - plain.cost(1, 1).parameters == extra * 24
    layer = mha.RoutedAttention(24, 8, 2, 2, gates="norms")
    assert layer.state_dict().keys() == mha.MultiHeadAttention(24, 8).state_dict().keys()


@pytest.mark.parametrize(("shared", "chosen"), [(2, 2), (0, 6), (6, 1), (3, 5), (1, 7)])
def test_the_peak_is_that_of_the_tensors_alive(shared, chosen):
    layer, x = mha.RoutedAttention(96, 8, shared, chosen).eval(), torch.randn(1, 400, 96)
    layer.skip_from = 0
    with torch.no_grad(), Peak(x, *layer.parameters()) as found:
        layer(x)
    assert layer.cost(1, 400).peak == pytest.approx(found.most, rel=0.1)


# ---- the balance of the heads


def test_the_balance_loss_is_the_sum_of_mean_probability_times_share_of_queries():
    layer, x = routed(2, 2), noise(B, N, D_MODEL)
    with mha.watch(layer, "probabilities", "gates", detach=False) as seen:
        layer(x)
    by_hand = 0.0
    for r in range(3):
        words, gates = x.flatten(0, 1), seen.gates[:, 2 + r].flatten().tolist()
        probability = sum(softmax((layer.router.W_r.weight @ word).tolist())[r] for word in words) / (B * N)
        served = sum(gate != 0 for gate in gates) / (B * N)
        by_hand += probability * served
    loss = balance_loss(seen.probabilities, seen.gates)
    assert abs(loss.item() - by_hand) < 1e-12
    loss.backward()
    assert layer.router.W_r.weight.grad.abs().max() > 1e-6
    assert layer.router.W_h.weight.grad.abs().max() == 0


def test_even_use_costs_k_of_e_and_one_favorite_costs_more():
    even = torch.full((1, 4, 4), 0.25)
    turns = torch.eye(4)[None] + torch.eye(4).roll(1, 0)[None]
    assert float(balance_loss(even, turns)) == 2 / 4
    favorite = torch.tensor([0.7, 0.1, 0.1, 0.1]).view(1, 4, 1).expand(1, 4, 4)
    assert float(balance_loss(favorite, choose(favorite, 1).double())) == pytest.approx(0.7)


def test_the_balance_loss_reaches_the_router_of_every_layer_of_a_model():
    stack = Stack(EncoderLayer(8, lambda: mha.RoutedAttention(8, 4, 1, 2)) for _ in range(2))
    with mha.watch(stack, "probabilities", "gates", detach=False) as seen:
        stack(noise(2, 6, 8))
    both = list(zip(seen.all("probabilities"), seen.all("gates"), strict=True))
    sum(balance_loss(*one) for one in both).backward()
    assert len(both) == 2
    assert all(p.grad.abs().max() > 0 for name, p in stack.named_parameters() if "W_r" in name)


def test_what_does_not_belong_together_has_no_balance(reader):
    for gates in (torch.ones(2, 2, 5), torch.ones(2, 4, 6), torch.ones(1, 4, 5)):
        with pytest.raises(ValueError, match="come from different calls"):
            balance_loss(torch.ones(2, 3, 5) / 3, gates)


def test_one_chosen_head_in_released_units_teaches_its_router_nothing():
    for gates, taught in (("released", False), ("paper", True)):
        layer = routed(2, 1, gates)
        layer(noise(B, N, D_MODEL)).square().sum().backward()
        assert bool(layer.router.W_r.weight.grad.abs().max() > 1e-9) == taught


# ---- the router without weights


def test_hard_gates_are_exactly_zero_or_one_and_have_a_slope():
    router, q = NormRouter(1, 4, 2), noise(2, 5, 7, 3).requires_grad_()
    gates = router(noise(2, 7, 3), q)
    assert set(gates.flatten().tolist()) == {0.0, 1.0}
    assert (gates.sum(1) == 3).all()
    lengths = q[:, 1:].norm(dim=-1)
    assert torch.equal(gates[:, 1:] != 0, choose(lengths, 2))
    (gates * noise(*gates.shape)).sum().backward()
    assert q.grad[:, 1:].abs().max() > 1e-3
    assert q.grad[:, 0].abs().max() == 0


def test_turning_queries_changes_no_choice():
    router, x, q = NormRouter(1, 4, 2), noise(2, 7, 3), noise(2, 5, 7, 4)
    assert torch.equal(router(x, q), router(x, mha.RotaryPositions().rotate(q, 11)))


def test_queries_of_equal_length_do_no_harm():
    q = torch.zeros(1, 4, 3, 2, requires_grad=True)
    gates = NormRouter(1, 3, 2)(noise(1, 3, 5), q)
    gates.sum().backward()
    assert (gates.sum(1) == 3).all()
    assert q.grad.isfinite().all()
    same = noise(1, 1, 3, 2).expand(1, 4, 3, 2).half()
    assert (NormRouter(1, 3, 2)(noise(1, 3, 5), same).sum(1) == 3).all()
    assert NormRouter(3, 1, 1)(noise(1, 3, 5), noise(1, 4, 3, 2)).isfinite().all()


# ---- bad input


@pytest.mark.parametrize(
    ("shared", "chosen", "message"),
    [
        (2, 5, r"chosen = 5 of 6 heads.*routed, heads − shared = 4; shared heads do not count"),
        (0, 7, "chosen = 7"),
        (7, 0, "shared = 7.*take 0 to 6 shared heads"),
        (-1, 2, "shared = -1"),
        (2, -1, "chosen = -1"),
        (0, 0, "no head is active"),
        (2, 0, "heads 2 to 5 could never be active.*share all"),
    ],
)
def test_splits_of_the_heads_that_cannot_work_are_refused(reader, shared, chosen, message):
    with pytest.raises(ValueError, match=message):
        mha.RoutedAttention(12, 6, shared, chosen)
    with pytest.raises(ValueError, match=message):
        mha.RoutedAttention.from_plain(mha.MultiHeadAttention(12, 6), shared, chosen)


def test_unknown_gates_are_refused(reader):
    with pytest.raises(ValueError, match=r"gates = 'soft'.*'released', 'paper', 'norms'"):
        mha.RoutedAttention(12, 6, 2, 2, gates="soft")


def test_more_heads_than_there_are_cannot_be_chosen(reader):
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"count = {count}: there are 4 heads, choose 1 to 4"):
            choose(torch.randn(1, 4, 2), count)


@pytest.mark.parametrize("skips", [False, True])
def test_masks_and_caches_that_do_not_fit_are_refused(reader, skips):
    layer, x = routed(skips=skips), noise(B, N, D_MODEL)
    bad = {
        "does not fit": torch.ones(B, 2, N, N, dtype=torch.bool),
        r"may look": torch.ones(N, N),
        r"3 axes": torch.ones(B, N, N, dtype=torch.bool),
    }
    for message, mask in bad.items():
        with pytest.raises((ValueError, TypeError), match=message):
            layer(x, mask=mask)
    with torch.no_grad():
        cache = layer.new_cache(4)
        with pytest.raises(ValueError, match="holds 4 positions, but 9"):
            layer(x, cache=cache, is_causal=True)
        with pytest.raises(ValueError, match="give it a column for each"):
            layer(x[:, :3], mask=torch.ones(3, 4, dtype=torch.bool), cache=layer.new_cache(9))
        with pytest.raises(ValueError, match="another sequence"):
            layer(x, noise(B, 4, D_MODEL), cache=layer.new_cache(9))


def test_a_longer_query_raises_the_gates_of_chosen_heads():
    router, q = NormRouter(1, 3, 2), noise(B, 4, N, 2).requires_grad_()
    gates = router(noise(B, N, D_MODEL), q)
    lengths = q[:, 1:].norm(dim=-1)
    apart = lengths - lengths.mean(1, keepdim=True)
    probabilities = (apart / apart.std(1, keepdim=True).detach()).softmax(1)
    (found,) = torch.autograd.grad((gates * torch.arange(1.0, 5)[:, None]).sum(), q, retain_graph=True)
    chosen = (probabilities * gates[:, 1:].detach() * torch.arange(2.0, 5)[:, None]).sum()
    (wanted,) = torch.autograd.grad(chosen, q)
    assert found.abs().max() > 0.1
    assert error(found, wanted) < 1e-12


def test_no_head_can_be_taken_out(reader):
    with pytest.raises(ValueError, match=r"heads \[1\] of RoutedAttention cannot be taken out.*from_plain"):
        routed().take_heads(iter([1]))
    with pytest.raises(ValueError, match="cannot be taken out"):
        prune_heads(nn.ModuleDict({"a": routed()}), {"a": [0]})


def test_the_router_is_seen_only_where_there_is_one():
    assert isinstance(routed().router, HeadRouter)
    with pytest.raises(ValueError, match="no place"), mha.watch(mha.MultiHeadAttention(4, 2), "gates"):
        pass
    layer, x = routed(), noise(B, N, D_MODEL)
    with mha.watch(layer, "probabilities", "gates", "heads") as seen:
        y = layer(x)
    assert seen.probabilities.shape == (B, 3, N)
    assert error(seen.probabilities.sum(1), torch.ones(B, N)) < 1e-12
    assert error(layer.contributions(seen.heads).sum(1) + layer.W_o.bias, y) < 1e-12
    assert (seen.heads.abs().amax(-1) == 0).equal(seen.gates == 0)
