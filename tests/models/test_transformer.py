"""Encoder and decoder layers, the two small models, and how they write."""

import itertools

import pytest
import torch
from torch import nn

import mha
from mha.analysis import leaks
from mha.layers import LearnedPositions, MemoryCache
from mha.models import (
    DecoderLayer,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    LanguageModel,
    evaluating,
    greedy,
    sampling,
    train,
    unroll,
)

B, N, M, D, HEADS, WORDS = 2, 5, 7, 12, 3, 11
EXACT = {"rtol": 0, "atol": 1e-10}


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def words(*shape, seed=0, low=0, high=WORDS):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def language_model(attention=HEADS, seed=0, **settings):
    torch.manual_seed(seed)
    return LanguageModel(WORDS, D, attention, **{"layers": 2} | settings).double().eval()


def translator(attention=HEADS, seed=0, **settings):
    torch.manual_seed(seed)
    return EncoderDecoder(WORDS, WORDS + 2, D, attention, **{"layers": 2} | settings).double().eval()


def rotary():
    return mha.MultiHeadAttention(D, HEADS, positions=mha.RotaryPositions())


def shared():
    return mha.GroupedAttention(D, HEADS, 1, positions=mha.RotaryPositions())


def sloped():
    return mha.MultiHeadAttention(D, HEADS, positions=mha.LinearBias())


# ---- the same as torch's layers ----


def copy_attention(ours, theirs):
    for block, rows, bias in zip((ours.W_q, ours.W_k, ours.W_v), *(t.chunk(3) for t in _packed(theirs)), strict=True):
        block.weight.copy_(rows), block.bias.copy_(bias)
    ours.W_o.load_state_dict(theirs.out_proj.state_dict())


def _packed(theirs):
    return theirs.in_proj_weight, theirs.in_proj_bias


@torch.no_grad()
def torch_pair(kind, norm_first, activation):
    """A layer of torch, and ours with the same weights."""
    torch.manual_seed(3)
    theirs = {"encoder": nn.TransformerEncoderLayer, "decoder": nn.TransformerDecoderLayer}[kind](
        D, HEADS, 20, 0.0, activation, batch_first=True, norm_first=norm_first
    ).double()
    for p in theirs.parameters():
        p.add_(0.1 * torch.randn_like(p))
    ff = {"feed_forward": lambda: FeedForward(D, 20, activation), "norm_first": norm_first}
    ours = {"encoder": EncoderLayer, "decoder": DecoderLayer}[kind](D, HEADS, **ff).double()
    norms = ["around_attention", "around_feed_forward"]
    if kind == "decoder":
        norms = ["around_self", "around_cross", "around_feed_forward"]
        copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy_attention(ours.attention if kind == "encoder" else ours.self_attention, theirs.self_attn)
    for number, name in enumerate(norms, 1):
        ours.get_submodule(name).norm.load_state_dict(getattr(theirs, f"norm{number}").state_dict())
    ours.feed_forward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.narrow.load_state_dict(theirs.linear2.state_dict())
    return ours, theirs


CHOICES = list(itertools.product([True, False], ["relu", "gelu"]))


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize(("norm_first", "activation"), CHOICES)
def test_an_encoder_layer_is_torchs_encoder_layer(norm_first, activation, mode):
    ours, theirs = torch_pair("encoder", norm_first, activation)
    x, lengths = noise(B, N, D), torch.tensor([3, 5])
    ours.train(mode == "train"), theirs.train(mode == "train")
    torch.testing.assert_close(ours(x), theirs(x), **EXACT)
    hidden = ~mha.causal_mask(N)
    torch.testing.assert_close(ours(x, is_causal=True), theirs(x, src_mask=hidden, is_causal=True), **EXACT)
    padded = theirs(x, src_key_padding_mask=torch.arange(N) >= lengths[:, None])
    masked = ours(x, mha.padding_mask(lengths, N))
    for b, length in enumerate(lengths):
        torch.testing.assert_close(masked[b, :length], padded[b, :length], **EXACT)


@pytest.mark.parametrize(("norm_first", "activation"), CHOICES)
def test_a_decoder_layer_is_torchs_decoder_layer(norm_first, activation):
    ours, theirs = torch_pair("decoder", norm_first, activation)
    x, memory, lengths = noise(B, N, D), noise(B, M, D, seed=1), torch.tensor([4, 7])
    how = {"tgt_mask": ~mha.causal_mask(N), "memory_key_padding_mask": torch.arange(M) >= lengths[:, None]}
    expected = theirs(x, memory, **how)
    torch.testing.assert_close(ours(x, memory, memory_mask=mha.padding_mask(lengths, M)), expected, **EXACT)


def test_dropout_falls_where_torch_drops():
    """Attention weights, the end of attention, inside and at the end of the feed-forward part."""
    torch.manual_seed(0)
    layer = EncoderLayer(D, HEADS, dropout=0.25)
    places = {name: m.p for name, m in layer.named_modules() if isinstance(m, nn.Dropout)}
    assert places == dict.fromkeys(
        ["feed_forward.dropout", "around_attention.dropout", "around_feed_forward.dropout"], 0.25
    )
    assert layer.attention.dropout == 0.25
    x = torch.randn(B, N, D)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("norm_first", [True, False])
def test_with_rms_norm_a_layer_is_its_formula(norm_first):
    torch.manual_seed(0)
    layer, x = EncoderLayer(D, HEADS, norm=nn.RMSNorm, norm_first=norm_first).double(), noise(B, N, D)
    one, two = layer.around_attention.norm, layer.around_feed_forward.norm
    assert isinstance(one, nn.RMSNorm)
    if norm_first:
        expected = x + layer.attention(one(x))
        expected = expected + layer.feed_forward(two(expected))
    else:
        expected = one(x + layer.attention(x))
        expected = two(expected + layer.feed_forward(expected))
    torch.testing.assert_close(layer(x), expected)


# ---- nothing sees the future ----


@pytest.mark.parametrize("attention", [HEADS, rotary, shared, sloped], ids=["heads", "rotary", "shared", "sloped"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_no_layer_of_a_language_model_sees_the_future(attention, norm_first):
    stack = language_model(attention, norm_first=norm_first).decoder
    report = leaks(stack, shape=(B, N, D), cache=stack.new_cache, is_causal=True)
    assert not report
    assert set(report.pairs) == {"train", "eval", "cached"}
    assert not any(report.blind.values())


def test_the_detector_would_see_an_encoder_used_as_a_language_model():
    assert leaks(language_model().decoder, shape=(B, N, D))


@pytest.mark.parametrize("norm_first", [True, False])
def test_no_decoder_layer_sees_the_future(norm_first):
    torch.manual_seed(0)
    layer = DecoderLayer(D, HEADS, norm_first=norm_first)
    report = leaks(layer, shape=(B, N, D), cache=layer.new_cache, memory=noise(B, M, D))
    assert not report
    assert not any(report.blind.values())


@pytest.mark.parametrize("cached", [False, True])
def test_changing_a_later_word_changes_no_earlier_guess(cached):
    model, text = language_model(), words(1, N)
    for place in range(N):
        changed = text.clone()
        changed[:, place] = (changed[:, place] + 1) % WORDS
        with torch.no_grad():
            caches = (model.decoder.new_cache(N), model.decoder.new_cache(N)) if cached else (None, None)
            moved = (model(text, cache=caches[0]) - model(changed, cache=caches[1])).abs().amax(-1)[0]
        assert (moved > 1e-9).tolist() == [n >= place for n in range(N)]


# ---- all at once = one word at a time ----


@pytest.mark.parametrize("attention", [HEADS, rotary, shared, sloped], ids=["heads", "rotary", "shared", "sloped"])
@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3), (N,)])
def test_a_language_model_fed_in_parts_says_the_same(attention, chunks):
    model, text = language_model(attention), words(B, N)
    with torch.no_grad():
        cache = model.decoder.new_cache(N)
        fed = torch.cat([model(part, cache=cache) for part in text.split(chunks, 1)], 1)
        torch.testing.assert_close(fed, model(text), **EXACT)
        for n in range(1, N):
            torch.testing.assert_close(model(text[:, :n]), model(text)[:, :n], **EXACT)


@pytest.mark.parametrize("chunks", [(1,) * N, (2, 3)])
def test_a_decoder_fed_in_parts_says_the_same(chunks):
    model, source, target = translator(), words(B, M), words(B, N, seed=1)
    mask = mha.padding_mask([4, 7], M)
    with torch.no_grad():
        all_at_once, memory = model(source, target, mask), model.encode(source, mask)
        cache = model.decoder.new_cache(N)
        fed = [model.decode(part, memory, source_mask=mask, cache=cache) for part in target.split(chunks, 1)]
        torch.testing.assert_close(torch.cat(fed, 1), all_at_once, **EXACT)


def test_padding_behind_a_source_or_a_target_changes_nothing():
    model, source, target = translator(), words(B, M), words(B, N, seed=1)
    short = model(source[:1, :4], target[:1, :3])
    masks = mha.padding_mask([4, 7], M), mha.padding_mask([3, 5], N)
    torch.testing.assert_close(model(source, target, *masks)[:1, :3], short, **EXACT)


ATTENTIONS = {
    "heads": {"attention": HEADS},
    "rotary": {"attention": rotary, "cross_attention": HEADS, "positions": None},
    "shared": {"attention": shared, "cross_attention": lambda: mha.GroupedAttention(D, HEADS, 1)},
    "learned": {"attention": HEADS, "positions": lambda: LearnedPositions(20, D)},
    "post-norm, root mean square": {"attention": HEADS, "norm_first": False, "norm": nn.RMSNorm},
}


@pytest.mark.parametrize("settings", ATTENTIONS.values(), ids=ATTENTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_cached_writing_is_uncached_writing_word_for_word(settings, seed):
    model, source, mask = translator(**settings, seed=seed), words(B, M, seed=seed), mha.padding_mask([4, 7], M)
    how = {"start": 0, "source_mask": mask, "stop": 1}
    slow, fast = (model.generate(source, 12, cached=cached, **how) for cached in (False, True))
    assert torch.equal(slow, fast)
    settings = {name: value for name, value in settings.items() if name != "cross_attention"}
    model, text = language_model(**settings, seed=seed), words(B, 3, seed=seed)
    slow, fast = (model.generate(text, 12, cached=cached) for cached in (False, True))
    assert torch.equal(slow, fast)
    assert torch.equal(slow[:, :3], text)
    assert slow.shape == (B, 15)


def test_greedy_writing_takes_the_best_word_each_time():
    model, text = language_model(), words(B, 3)
    written = model.generate(text, 4)
    for n in range(3, 7):
        assert torch.equal(written[:, n], model(written[:, :n])[:, -1].argmax(-1))


@pytest.mark.parametrize("top_k", [None, 3])
def test_cached_drawing_is_uncached_drawing_from_the_same_generator(top_k):
    model, text = language_model(), words(B, 3)

    def draw(seed, cached=True):
        generator = torch.Generator().manual_seed(seed)
        return model.generate(text, 10, choose=sampling(generator, top_k=top_k), cached=cached)

    assert torch.equal(draw(0), draw(0, cached=False))
    assert any(not torch.equal(draw(0), draw(seed)) for seed in range(1, 4))


def test_the_memory_is_projected_once():
    model, source = translator(), words(B, M)
    seen = []
    for layer in model.decoder:
        layer.cross_attention.W_k.register_forward_hook(lambda *_: seen.append(1))
    model.generate(source, 6, start=0)
    assert len(seen) == len(model.decoder)
    model.generate(source, 6, start=0, cached=False)
    assert len(seen) == 7 * len(model.decoder)


# ---- drawing ----


def test_drawn_words_follow_the_probabilities():
    logits = torch.tensor([0.5, 0.2, 0.2, 0.1]).log().expand(20_000, 4)
    for temperature, expected in ((1.0, [0.5, 0.2, 0.2, 0.1]), (0.5, [25 / 34, 4 / 34, 4 / 34, 1 / 34])):
        choose = sampling(torch.Generator().manual_seed(0), temperature=temperature)
        shares = choose(logits).bincount(minlength=4) / 20_000
        torch.testing.assert_close(shares, torch.tensor(expected), rtol=0, atol=0.012)


def test_top_k_draws_from_k_words_only():
    logits, generator = torch.tensor([[0.1, 3.0, 2.9, 0.2]]).expand(500, 4), torch.Generator().manual_seed(0)
    assert sampling(generator, top_k=2)(logits).unique().tolist() == [1, 2]
    assert torch.equal(sampling(generator, top_k=1)(logits), greedy(logits))


def test_bad_ways_of_drawing_are_refused():
    generator = torch.Generator()
    for temperature in (0.0, -1.0):
        with pytest.raises(ValueError, match=r"temperature = .*positive.*greedy"):
            sampling(generator, temperature=temperature)
    with pytest.raises(ValueError, match="top_k = 0: it must be at least 1"):
        sampling(generator, top_k=0)
    with pytest.raises(ValueError, match=r"top_k = 5.*between 1 and the number of tokens, 4"):
        sampling(generator, top_k=5)(torch.zeros(1, 4))


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("top_k", [None, 1, 2])
def test_scores_that_nothing_can_be_drawn_from_are_refused(reader, temperature, top_k):
    draw = sampling(torch.Generator(), temperature=temperature, top_k=top_k)
    scores = torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    for n in range(3):
        bad = scores.clone()
        bad[1, n] = torch.nan
        for choose in (draw, greedy):
            with pytest.raises(ValueError, match=r"logits of shape \(2, 3\) holds NaN"):
                choose(bad)
        bad[1, n] = torch.inf
        with pytest.raises(ValueError, match=r"logits of shape \(2, 3\) .*highest score is infinite"):
            draw(bad)
    with pytest.raises(ValueError, match=r"highest score is infinite"):
        draw(torch.full((2, 3), -torch.inf))
    for choose in (draw, greedy):
        with pytest.raises(ValueError, match=r"logits has shape \(3,\)"):
            choose(scores[0])
        with pytest.raises(ValueError, match=r"logits has shape \(2, 0\)"):
            choose(scores[:, :0])
        with pytest.raises(TypeError, match=r"logits has dtype torch\.int64"):
            choose(scores.long())
    hidden = scores.clone()
    hidden[:, 0] = -torch.inf  # tokens that must not come
    assert 0 not in draw(hidden.repeat(50, 1))


@pytest.mark.parametrize("kind", [torch.float64, torch.bool, torch.uint8], ids=str)
def test_choices_that_are_no_token_numbers_are_refused(reader, kind):
    with pytest.raises(ValueError, match=rf"choose returned a tensor of shape \(2,\) and {kind}: .*token numbers"):
        unroll(lambda _: torch.zeros(2, 5), words(2, 3), 2, choose=lambda logits: logits.argmax(-1).to(kind))


@pytest.mark.parametrize(
    "wrong", [7, 2.0, [[0, 1, 2]], torch.zeros(2, 3), torch.zeros(3).long(), torch.zeros(2, 2).long()], ids=str
)
def test_positions_that_are_none_are_refused_by_the_name_they_were_given_by(reader, wrong):
    with pytest.raises((TypeError, ValueError), match=r"position_ids (= .*give whole positions|is .*must be a tensor)"):
        language_model()(words(2, 3), position_ids=wrong)


@pytest.mark.parametrize("part", ["norm", "attention", "feed_forward", "positions"])
def test_what_makes_no_module_is_refused_by_name(reader, part):
    for wrong in (nn.Linear(3, 3), nn.Identity(), lambda a, b, c: nn.Identity()):
        with pytest.raises(TypeError, match=rf"{part} = .* (makes no module when it is given|returned)"):
            LanguageModel(WORDS, D, **{"attention": HEADS} | {part: wrong})


def test_a_stopped_sequence_stays_stopped_and_the_loop_ends_when_all_have():
    script = torch.tensor([[5, 1, 5, 5, 5, 5], [5, 5, 5, 1, 5, 5]])

    def next_logits(so_far):
        return nn.functional.one_hot(script[:, so_far.shape[1] - 1], 6).double()

    written = unroll(next_logits, torch.zeros(2, 1, dtype=torch.long), 6, stop=1)
    assert written.tolist() == [[0, 5, 1, 1, 1], [0, 5, 5, 5, 1]]
    assert unroll(next_logits, torch.zeros(2, 1, dtype=torch.long), 6).shape == (2, 7)


def test_writing_turns_dropout_off_and_back_on():
    model = language_model(dropout=0.5).train()
    text = words(B, 3)
    assert torch.equal(model.generate(text, 5), model.generate(text, 5, cached=False))
    assert model.training
    with pytest.raises(RuntimeError, match="on purpose"), evaluating(model):
        raise RuntimeError("on purpose")
    assert model.training
    assert torch.is_grad_enabled()


# ---- watching ----


def test_a_watcher_sees_every_layer_by_a_readable_path():
    model, source, target = translator(), words(B, M), words(B, N)
    with mha.watch(model, "weights") as seen:
        watched = model(source, target)
    torch.testing.assert_close(watched, model(source, target), **EXACT)
    assert {path: tuple(weights.shape) for path, weights in seen.items()} == {
        f"{path}.weights": (B, HEADS, *shape)
        for i in range(2)
        for path, shape in (
            (f"encoder.{i}.attention", (M, M)),
            (f"decoder.{i}.self_attention", (N, N)),
            (f"decoder.{i}.cross_attention", (N, M)),
        )
    }
    with mha.watch(model := language_model(shared), "weights") as seen:
        model(words(B, N))
    assert list(seen) == ["decoder.0.attention.weights", "decoder.1.attention.weights"]


# ---- any layer can be plugged in ----


class Averaging(mha.Heads):
    """A layer of the reader's own: every word reads the mean of what it may see. It takes no cache."""

    def forward(self, query, key=None, value=None, mask=None, *, is_causal=False):
        q, k, v = self.project(query, key, value, is_causal=is_causal)
        return self.merge(self.attend(q * 0, k, v, mask, is_causal=is_causal))


def test_a_layer_without_a_cache_can_be_plugged_in_but_writes_uncached():
    model = language_model(lambda: Averaging(D, HEADS))
    assert model.generate(words(B, 2), 3, cached=False).shape == (B, 5)
    with pytest.raises(ValueError, match=r"Averaging takes no cache.*cached=False"):
        model.generate(words(B, 2), 3)
    assert translator(lambda: Averaging(D, HEADS))(words(B, M), words(B, N)).shape == (B, N, WORDS + 2)


def test_a_single_head_can_be_plugged_in():
    model = language_model(lambda: mha.SelfAttention(D, 4, D), positions=None)
    assert not leaks(model.decoder, shape=(B, N, D), is_causal=True)


def test_every_weight_of_both_models_learns():
    for model, inputs in ((language_model(), (words(B, N),)), (translator(), (words(B, M), words(B, N)))):
        model(*inputs).logsumexp(-1).square().sum().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []
        still = [name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-12]
        assert all(name.endswith("W_k.bias") for name in still), still  # the softmax never feels the key's bias


def test_layers_of_a_stack_have_weights_of_their_own():
    first, second = language_model().decoder
    assert not torch.equal(first.attention.W_q.weight, second.attention.W_q.weight)


def test_a_language_model_learns_to_copy_in_few_steps():
    torch.manual_seed(0)
    model = LanguageModel(6, 32, 4, layers=2)
    generator = torch.Generator().manual_seed(0)

    def loss(model, _step):
        half = torch.randint(6, (32, 4), generator=generator)
        text = torch.cat([half, half], 1)
        return nn.functional.cross_entropy(model(text[:, :-1])[:, 3:].flatten(0, 1), text[:, 4:].flatten())

    losses = train(model, loss, 150)
    assert losses[-1] < 0.05 * losses[0]
    assert model.generate(torch.tensor([[3, 1, 4, 1], [5, 0, 2, 2]]), 4)[:, 4:].tolist() == [[3, 1, 4, 1], [5, 0, 2, 2]]


# ---- bad input ----


def test_words_that_do_not_exist_are_named(reader):
    model = language_model()
    with pytest.raises(ValueError, match=rf"token number {WORDS} is unknown.*{WORDS} tokens, numbered 0 to "):
        model(torch.tensor([[0, WORDS]]))
    with pytest.raises(ValueError, match=r"token number -1 is unknown"):
        model(torch.tensor([[0, -1]]))
    with pytest.raises(TypeError, match=r"float64.*whole numbers"):
        model(noise(1, 3))
    with pytest.raises(ValueError, match=r"\(3,\).*\(batch, sequence\)"):
        model(torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match=r"\(2, 0\).*empty"):
        model(words(2, 0))
    with pytest.raises(ValueError, match=r"\(3,\).*\(batch, sequence\)"):
        model.generate(torch.tensor([0, 1, 2]), 2)
    with pytest.raises(ValueError, match=rf"token number {WORDS + 2} is unknown"):
        translator().generate(words(B, M), 2, start=WORDS + 2)


def test_an_empty_source_is_refused():
    model = translator()
    with pytest.raises(ValueError, match=r"source is empty.*\(2, 0\)"):
        model(words(B, 0), words(B, N))
    with pytest.raises(ValueError, match=r"source \[1\] of the batch is empty"):
        model(words(B, M), words(B, N), mha.padding_mask([3, 0], M))


def test_a_sequence_longer_than_the_positions_is_refused():
    model = language_model(positions=lambda: LearnedPositions(4, D))
    with pytest.raises(ValueError, match=r"position 4 .*only 0 to 3"):
        model(words(1, 5))
    with pytest.raises(ValueError, match=r"position 4 .*only 0 to 3"):
        model.generate(words(1, 3), 4)
    assert model.generate(words(1, 3), 2).shape == (1, 5)


def test_a_cache_of_another_memory_or_too_small_is_refused():
    layer = DecoderLayer(D, HEADS).double()
    with torch.no_grad():
        cache = layer.new_cache(3)
        layer(noise(B, 2, D), noise(B, M, D), cache=cache)
        with pytest.raises(ValueError, match=rf"memory of shape \(2, {M}, {D}\).*shape \(2, 3, {D}\).*new cache"):
            layer(noise(B, 1, D), noise(B, 3, D), cache=cache)
        with pytest.raises(ValueError, match=r"holds 3 positions.*4 were fed"):
            layer(noise(B, 1, D), noise(B, M, D), cache=cache)
    with pytest.raises(ValueError, match=r"gradients.*no_grad"):
        mha.MultiHeadAttention(D, HEADS)(torch.randn(1, 2, D), torch.randn(1, 3, D), cache=MemoryCache())


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"'tanh'.*gelu.*relu"):
        FeedForward(4, 8, "tanh")
    with pytest.raises(ValueError, match=r"at least 1"):
        LanguageModel(5, 8, 2, layers=0)
    with pytest.raises(ValueError, match=r"length = 0"):
        language_model().generate(words(1, 2), 0)
    with pytest.raises(ValueError, match=r"stop = 11 is no token: there are 11"):
        language_model().generate(words(1, 2), 1, stop=WORDS)
    with pytest.raises(ValueError, match=r"cross-attention was made with RotaryPositions.*give cross_attention="):
        translator(rotary)


@pytest.mark.parametrize("kind", ["EncoderLayer", "DecoderLayer", "MergedDecoderLayer", "FeedbackLayer"])
def test_what_makes_no_layer_is_refused_by_name(reader, kind):
    with pytest.raises(TypeError, match="attention = None: it must be a function that makes a module"):
        getattr(mha.models, kind)(16, None)
