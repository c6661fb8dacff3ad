"""What heads do, on weights that were built so that the answer is known."""

import math

import pytest
import torch
from oracle import LIMIT, error
from registry import every
from torch import nn

import mha
from mha.analysis import circuits, head_detection, patterns, prune_heads, similarity
from mha.data import python_source
from mha.interop import swap, unswap
from mha.models import LanguageModel

N = 7


def looking(steps, n=N):
    """Weights of one head that looks so many steps away; where there is no such word, at itself."""
    places = (torch.arange(n) + steps).clamp(0, n - 1)
    return torch.eye(n)[places][None, None]


def words(*lines):
    return torch.tensor(lines)


def pairs_of(targets):
    return targets.nonzero().tolist()


# ---- how widely, how far


def test_entropy_is_zero_at_one_key_and_log_n_at_n():
    both = torch.cat([looking(0), torch.full((1, 1, N, N), 1 / N)], 1)
    assert error(head_detection.entropy(both), torch.tensor([0, math.log(N)])) < LIMIT
    both[:, :, 2:] = 0  # rows that look at nothing do not count
    assert error(head_detection.entropy(both), torch.tensor([0, math.log(N)])) < LIMIT
    causal = head_detection.uniform(mha.causal_mask(N).double()[None, None])
    assert error(head_detection.entropy(causal), torch.tensor([math.lgamma(N + 1) / N])) < LIMIT


def test_weights_below_zero_have_no_entropy(reader):
    """It was NaN, without a word."""
    with pytest.raises(ValueError, match=r"down to -0\.5: entropy is for shares"):
        head_detection.entropy(looking(0) - 0.5)


def test_distance_of_a_uniform_head_is_known():
    assert (
        error(head_detection.distance(torch.full((2, 1, N, N), 1 / N)), torch.tensor([(N * N - 1) / (3 * N)])) < LIMIT
    )
    assert (
        error(head_detection.distance(looking(-1)), torch.tensor([(N - 1) / N])) < LIMIT
    )  # the first word looks at itself
    assert head_detection.distance(looking(0)[..., -2:, :]).item() == 0  # fewer queries than keys: the last ones


# ---- finding targets


def test_a_head_that_looks_right_finds_everything_and_one_that_does_not_finds_nothing():
    weights = torch.cat([looking(-1), looking(1), torch.full((1, 1, N, N), 1 / N)], 1)
    found = head_detection.score_heads(weights, patterns.offset(N, -1))
    assert found.queries == N - 1  # the first word has no previous one
    right = torch.tensor([1, 0, 1 / N])
    assert error(found.weight, right) < LIMIT
    assert error(found.argmax, right) < LIMIT  # uniform: all keys are largest, so it gets what chance gives


def test_weight_and_argmax_are_different_questions():
    weights = torch.tensor([[0.4, 0.35, 0.25]]).expand(1, 1, 3, 3)
    found = head_detection.score_heads(weights, patterns.offset(3, 0))
    assert error(found.weight, torch.tensor([1 / 3])) < LIMIT
    assert error(found.argmax, torch.tensor([1 / 3])) < LIMIT
    both = torch.zeros(3, 3, dtype=torch.bool)
    both[0, 1:] = True
    assert error(head_detection.score_heads(weights, both).weight, torch.tensor([0.6])) < LIMIT
    assert head_detection.score_heads(weights, both).argmax.item() == 0


def test_queries_that_look_at_nothing_do_not_count_and_heads_are_counted_apart():
    weights = torch.cat([looking(-1), looking(-1)], 1).clone()
    weights[:, 0, 3:] = 0
    weights[:, 1, 1] = torch.eye(N)[5]
    found = head_detection.score_heads(weights, patterns.offset(N, -1))
    assert error(found.argmax, torch.tensor([1, 5 / 6])) < LIMIT


def test_targets_that_do_not_fit_are_refused(reader):
    with pytest.raises(TypeError, match=r"targets has dtype torch\.float64, but must be torch\.bool"):
        head_detection.score_heads(looking(0), torch.eye(N))
    with pytest.raises(ValueError, match=r"torch.bool \(3, 3\), but must be boolean, of shape \(7, 7\) or \(1, 7, 7\)"):
        head_detection.score_heads(looking(0), patterns.offset(3, 0))
    for empty in (head_detection.score_heads, lambda _, t: head_detection.best_offset(t)):
        with pytest.raises(ValueError, match="no query has a target"):
            empty(looking(0), torch.zeros(N, N, dtype=torch.bool))


# ---- rules


def test_the_rules_mark_what_they_say():
    line = words([1, 2, 3, 1, 2, 1])
    assert pairs_of(patterns.offset(3, -1)) == [[1, 0], [2, 1]]
    assert pairs_of(patterns.offset(2, -1, keys=4)) == [[0, 1], [1, 2]]
    assert pairs_of(patterns.first(3)) == [[1, 0], [2, 0]]
    assert pairs_of(patterns.same(line)[0]) == [[3, 0], [4, 1], [5, 0], [5, 3]]
    assert pairs_of(patterns.induction(line)[0]) == [[3, 1], [4, 2], [5, 1], [5, 4]]
    assert pairs_of(patterns.induction(words([1, 1]))[0]) == [[1, 1]]  # the word that followed is this very word
    assert pairs_of(patterns.separator(line, [3])[0]) == [[2, 2], [3, 2], [4, 2], [5, 2]]
    rare = patterns.rarest(words([0, 1, 0, 2]), torch.tensor([9, 5, 5]))[0]
    assert pairs_of(rare) == [[1, 1], [2, 1], [3, 1], [3, 3]]


def brackets(text):
    return words([" ()[]{}".index(c) for c in text]), {1: 2, 3: 4, 5: 6}


def test_brackets_find_their_openers():
    text = "([]{ }) ]"
    assert pairs_of(patterns.matching(*brackets(text))[0]) == [[2, 1], [5, 3], [6, 0]]
    assert pairs_of(patterns.matching(*brackets(text), nested=True)[0]) == [[6, 0]]
    assert pairs_of(patterns.matching(*brackets("(]"))[0]) == []  # the wrong kind
    still = [[0, 0], [1, 1], [2, 0], [3, 3], [4, 3], [5, 0]]
    assert pairs_of(patterns.still_open(*brackets(text))[0]) == still
    assert pairs_of(patterns.still_open(*brackets(text), nested=True)[0]) == [[2, 0], [5, 0]]
    with pytest.raises(ValueError, match="cannot both open and close"):
        patterns.matching(brackets("()")[0], {1: 2, 2: 1})


PROGRAM = """\
def f(a, b=1):  # a comment
    a = a + b
    for c in range(a):
        ä = "é"; b = g(ä, c)
    def g(b):
        return b
    return b
"""


def test_names_of_a_program_meet_the_place_that_set_them_last():
    program = python_source.read_program(PROGRAM)
    said = [f"{program.tokens[i]}{i}<{j}" for i, j in pairs_of(program.names)]
    places = {n: word for n, word in enumerate(program.tokens) if word in "abcä"}
    assert "".join(places.values()) == "abaabcaäbäcbbb"
    a, b, a2, a3, b2, c, a4, ä, b3, ä2, c2, b4, b5, b6 = places
    links = [(a3, a), (b2, b), (a4, a2), (ä2, ä), (c2, c), (b5, b4), (b6, b3)]
    assert said == [f"{places[i]}{i}<{j}" for i, j in sorted(links)]
    assert "# a comment" not in program.tokens
    assert program.tokens.count("⇥") == program.tokens.count("⇤") == 3


def test_what_is_no_program_is_refused():
    for text in ("def f(:", "x = (", "  x\n y"):
        with pytest.raises(ValueError, match="this is no Python"):
            python_source.read_program(text)


# ---- what chance gives


def test_uniform_and_shuffled_keep_to_the_keys_that_were_visible():
    weights = torch.randn(2, 3, N, N).softmax(-1) * mha.causal_mask(N)
    weights = weights / weights.sum(-1, keepdim=True)
    weights[0, 0, 3] = 0
    even = head_detection.uniform(weights)
    assert error(even[1, 2, 3], torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0, 0])) < LIMIT
    assert even[0, 0, 3].abs().max() == 0
    dealt = head_detection.shuffled(weights, generator=torch.Generator().manual_seed(0))
    assert torch.equal(dealt.sort(-1).values, weights.sort(-1).values)
    assert torch.equal(dealt != 0, weights != 0)
    assert not torch.equal(dealt, weights)


def test_shuffling_takes_a_sure_head_to_what_chance_gives():
    random = torch.Generator().manual_seed(0)
    sure = (0.9 * looking(-1) + 0.1 / N).expand(2000, 1, N, N)
    found = head_detection.score_heads(head_detection.shuffled(sure, generator=random), patterns.offset(N, -1))
    assert abs(found.argmax.item() - 1 / N) < 0.01


def test_an_untrained_copy_has_other_weights_and_the_model_keeps_its_own():
    model = LanguageModel(5, 8, 2)
    before = {name: w.clone() for name, w in model.state_dict().items()}
    state = torch.get_rng_state()
    one, other = head_detection.untrained(model, seed=1), head_detection.untrained(model, seed=1)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())
    assert all(torch.equal(w, other.state_dict()[name]) for name, w in one.state_dict().items())
    assert not torch.equal(one.decoder[0].attention.W_q.weight, before["decoder.0.attention.W_q.weight"])
    bare = nn.ParameterList([torch.zeros(1)])
    with pytest.raises(ValueError, match=r"the model \(ParameterList\) has no reset_parameters"):
        head_detection.untrained(bare, seed=0)


class Half(nn.Linear):
    """A module whose rule forgets one of its parameters."""

    def reset_parameters(self):
        nn.init.zeros_(self.weight)


def test_a_rule_that_forgets_a_parameter_is_refused_and_torchs_other_rule_is_known():
    model = nn.Sequential(nn.Linear(2, 2), Half(2, 2))
    with pytest.raises(ValueError, match=r"1 \(Half\) has no reset_parameters: build anew"):
        head_detection.untrained(model, seed=0)
    fresh = head_detection.untrained(nn.MultiheadAttention(4, 2), seed=0)
    assert not fresh.in_proj_bias.any()
    assert fresh.in_proj_weight.any()


SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 40,
    "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
SHARES = {**SMALL, "num_key_value_heads": 2, "head_dim": 16}
MODELS = {
    "LlamaForCausalLM": ("LlamaConfig", SHARES),
    "Qwen3ForCausalLM": ("Qwen3Config", {**SHARES, "tie_word_embeddings": True}),
    "GemmaForCausalLM": ("GemmaConfig", SHARES),
    "GptOssForCausalLM": ("GptOssConfig", {**SHARES, "num_local_experts": 2, "attn_implementation": "eager"}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 40}),
    "BertModel": ("BertConfig", SMALL),
    "AlbertForMaskedLM": ("AlbertConfig", SMALL | {"embedding_size": 16}),
}


def released(kind):
    """A small model of transformers that is far from where it began."""
    transformers = pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")
    torch.set_default_dtype(torch.float32)
    name, options = MODELS[kind]
    model = getattr(transformers, kind)(getattr(transformers, name)(**options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(7.0)
    return model


@pytest.mark.parametrize("put_in", [0, 2], ids=["theirs", "swapped"])
@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_an_untrained_copy_of_a_model_of_theirs_begins_by_its_own_rule(kind, put_in):
    model = released(kind)
    layers = [swap(model, number) for number in range(min(put_in, 1 if "Albert" in kind else 2))]
    next(model.parameters()).requires_grad_(False)
    one, other = (head_detection.untrained(model, seed=3) for _ in range(2))
    built = type(model)(model.config)
    assert not one.training
    assert [(name, w.requires_grad) for name, w in one.named_parameters()] == [
        (name, w.requires_grad) for name, w in model.named_parameters()
    ]
    assert [type(m).__name__ for m in one.modules()] == [type(m).__name__ for m in model.modules()]
    for name, weight in one.named_parameters():
        assert torch.equal(weight, other.get_parameter(name))
        assert not bool((weight == 7).any())
    for name, right in dict(built.named_parameters()).items():  # what stands in layers of ours is looked at below
        weight = dict(one.named_parameters()).get(name)
        if weight is not None and weight.numel() >= 64:  # fewer numbers have any spread
            assert weight.std() == pytest.approx(right.std().item(), rel=0.35, abs=1e-3), name
            assert weight.mean() == pytest.approx(right.mean().item(), abs=2e-2), name
    for layer in (m for m in one.modules() if isinstance(m, mha.Heads)):
        assert layer.W_k.weight.std() == pytest.approx(0.02, rel=0.2)
        assert layer.W_k.bias is None or not layer.W_k.bias.any()
    assert all(bool((weight == 7).all()) for weight in model.parameters())
    assert sum(isinstance(m, mha.Heads) for m in one.modules()) == len(layers)


def test_marks_of_loaded_parameters_do_not_keep_them(tmp_path):
    released("LlamaForCausalLM").save_pretrained(tmp_path)
    loaded = type(released("LlamaForCausalLM")).from_pretrained(tmp_path)
    fresh = head_detection.untrained(loaded, seed=0)
    assert not any(bool((weight == 7).any()) for weight in fresh.parameters())


@torch.no_grad()
def test_a_pruned_and_swapped_model_keeps_its_sizes_and_can_be_given_back():
    model = released("Qwen3ForCausalLM")
    swap(model, 0)
    pruned = prune_heads(model, {"model.layers.0.self_attn.layer": [1]}, groups=True)
    fresh = head_detection.untrained(pruned, seed=0)
    assert [w.shape for w in fresh.parameters()] == [w.shape for w in pruned.parameters()]
    assert bool((fresh.model.layers[0].self_attn.layer.W_q.norm == 1).all())
    ids = torch.arange(6)[None]
    whole = head_detection.untrained(model, seed=0)
    logits = whole(ids).logits
    assert logits.isfinite().all()
    assert error(unswap(whole)(ids).logits, logits) < 1e-5
    assert whole.lm_head.weight is whole.model.embed_tokens.weight


def test_the_best_offset_is_found():
    rule = patterns.offset(N, -2)
    rule[3] = False
    rule[3, 0] = True
    assert head_detection.best_offset(rule) == (-2, 4 / 5)
    assert head_detection.best_offset(patterns.offset(2, 0, keys=5)) == (0, 1.0)
    assert head_detection.best_offset(rule, mha.causal_mask(N)) == (-2, 4 / 5)
    assert head_detection.baseline([looking(-2)], rule) == pytest.approx(4 / 5)
    rule[4:] = False  # now two offsets meet one query each
    assert head_detection.baseline([looking(0)], rule) == 1 / 2
    assert (
        head_detection.baseline([looking(0), torch.cat([looking(0), looking(-3)], 1)], rule) == 1.0
    )  # its word 2 also looks at 0


# ---- names of heads


def test_a_positional_head_needs_nine_cases_of_ten():
    n = 12  # eleven words have a previous one
    weights = torch.cat([looking(-1, n), looking(-1, n), looking(-1, n), looking(1, n), looking(0, n)], 1).clone()
    weights[:, 1, 5] = torch.eye(n)[0]
    weights[:, 2, 5:7] = torch.eye(n)[0]
    assert head_detection.classify(weights) == [["previous"], ["previous"], [], ["next"], []]


def test_a_head_gets_the_name_of_a_rule_only_if_it_beats_every_offset():
    rule = patterns.matching(*brackets("(()())[]"))[0]
    perfect = torch.where(rule.any(-1, keepdim=True), rule.double(), torch.eye(8))[None, None]
    weights = torch.cat([perfect, looking(-1, 8)], 1)
    assert head_detection.best_offset(rule) == (-1, 3 / 4)
    assert head_detection.classify(weights, {"bracket": rule}) == [["bracket"], ["previous"]]


# ---- similarity


def test_divergence_is_zero_for_the_same_and_one_for_no_common_key():
    weights = torch.cat([looking(0), looking(0), looking(1), torch.full((1, 1, N, N), 1 / N)], 1)
    weights[:, 2] = torch.eye(N).roll(1, 1)
    found = similarity.divergence(weights)
    half = (1 + 1 / N) / 2
    uneven = -half * math.log2(half) - (N - 1) / (2 * N) * math.log2(1 / (2 * N)) - math.log2(N) / 2
    right = torch.tensor([[0, 0, 1, uneven], [0, 0, 1, uneven], [1, 1, 0, uneven], [uneven, uneven, uneven, 0]])
    assert (found - right).abs().max() < LIMIT


def test_alignment_does_not_see_turning_scaling_and_shifting():
    x = torch.randn(2, 1, 50, 4)
    turn = torch.linalg.qr(torch.randn(4, 4))[0]
    other = torch.randn(2, 1, 50, 4)
    found = similarity.kernel_alignment(torch.cat([x, 3 * x @ turn + 1, other, torch.ones(2, 1, 50, 4)], 1))
    assert error(found[:2, :2], torch.ones(2, 2)) < LIMIT
    assert found[0, 2] < 0.2
    assert found[3].abs().max() == 0
    assert error(found, found.mT) < LIMIT


# ---- circuits


@pytest.mark.parametrize("layer", [lambda: mha.MultiHeadAttention(6, 3), lambda: mha.GroupedAttention(8, 4, 2)])
def test_circuits_say_what_the_layer_computes(layer):
    layer = layer().eval()
    for name, bias in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(bias)
    x = torch.randn(2, 5, layer.d_model)
    with mha.watch(layer) as seen:
        y = layer(x)
    scores = torch.einsum("bim,hmn,bjn->bhij", x, circuits.qk_circuit(layer), x)
    assert error(scores, seen.scores) < LIMIT
    written = torch.einsum("bhij,hmn,bjn->bim", seen.weights, circuits.ov_circuit(layer), x)
    assert error(written, y) < LIMIT


@pytest.mark.parametrize("kind", [mha.MultiHeadAttention, mha.EntmaxAttention, mha.SinkAttention])
def test_circuits_know_the_scale_that_the_layer_was_given(kind):
    layer, x = kind(6, 3, bias=False), torch.randn(2, 5, 6)
    layer.scale = 0.9
    with mha.watch(layer, "scores") as seen:
        layer(x)
    assert error(torch.einsum("bim,hmn,bjn->bhij", x, circuits.qk_circuit(layer), x), seen.scores) < LIMIT


def test_what_is_added_to_the_head_outputs_is_no_circuit():
    with pytest.raises(ValueError, match="ov_circuit of MergedAttention: an average of the tokens before is added"):
        circuits.ov_circuit(mha.MergedAttention(6, 3))
    layer, x, memory = mha.MergedAttention(6, 3, average=False, bias=False), torch.randn(2, 5, 6), torch.randn(2, 4, 6)
    with mha.watch(layer, "weights") as seen:
        y = layer(x, memory)
    assert error(torch.einsum("bhij,hmn,bjn->bim", seen.weights, circuits.ov_circuit(layer), memory), y) < LIMIT


@every()
def test_contributions_of_every_layer_sum_to_its_output(entry):
    layer, x = entry.build().eval(), entry.words()
    if not isinstance(layer, mha.Heads):
        pytest.skip("it has one head and no output projection")
    with mha.watch(layer, "heads") as seen:
        y = layer(x, *(() if entry.alone else entry.memory(layer)))
    parts = layer.contributions(seen.heads).sum(1)
    assert error(parts if layer.W_o.bias is None else parts + layer.W_o.bias, y) < LIMIT


def test_copying_is_one_for_the_identity_and_minus_one_for_its_opposite():
    skew = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    maps = torch.stack([torch.eye(2), -3 * torch.eye(2), skew, torch.zeros(2, 2)])
    assert error(circuits.copying(maps), torch.tensor([1.0, -1.0, 0.0, 0.0])) < LIMIT
