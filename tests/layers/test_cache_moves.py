"""What beam search, refused drafts and several answers to one prompt ask of a cache: going back, moving, copies."""

import copy
import pickle

import pytest
import torch
from oracle import LIMIT, error
from registry import LAYERS
from torch import nn

import mha
from mha.layers import MemoryCache, StateCache, WindowCache
from mha.models import EncoderDecoder, LanguageModel

GROWING = [e for e in LAYERS if e.caches or (e.own_cache and e.constant_memory)]
READING = [e for e in LAYERS if e.own_cache and not e.constant_memory]
entries = pytest.mark.parametrize("entry", GROWING, ids=lambda e: e.name)


def begun(entry, n=3):
    """A layer, its words, and a cache that has read the first n."""
    layer, x = entry.build().eval(), entry.words(7)
    if not entry.alone and not entry.needs_is_causal:
        pytest.skip("reads another width than it is asked with")
    cache = layer.new_cache(9)
    layer(x[:, :n], is_causal=True, cache=cache)
    return layer, x, cache


def goes_on(layer, x, cache):
    """What the next tokens read behind a cache."""
    return layer(x, is_causal=True, cache=cache)


@entries
@torch.no_grad()
def test_a_refused_draft_is_taken_back(entry):
    layer, x, cache = begun(entry)
    right = goes_on(layer, x[:, 3:], copy.deepcopy(cache))
    before = copy.deepcopy(cache)
    goes_on(layer, -x[:, :2], cache)
    assert cache.length == 5
    if entry.constant_memory:
        for back in (lambda: cache.crop(3), lambda: setattr(cache, "length", 3)):
            with pytest.raises(ValueError, match=r"length = 3: StateCache does not know any more.*copy\.deepcopy"):
                back()
        assert cache.length == 5
        cache = before
    else:
        cache.crop(3)
    assert cache.length == 3
    assert error(goes_on(layer, x[:, 3:], cache), right) < LIMIT


@entries
@torch.no_grad()
def test_rows_move_as_beam_search_asks(entry):
    layer, x, cache = begun(entry)
    rows = [2, 0, 0, 1]
    right = goes_on(layer, x[:, 3:], copy.deepcopy(cache))[rows]
    cache.reorder(rows)
    assert error(goes_on(layer, x[rows, 3:], cache), right) < LIMIT


@entries
@torch.no_grad()
def test_several_answers_go_on_from_one_prompt(entry):
    layer, x, cache = begun(entry)
    more = entry.words(2, batch=2 * len(x))
    right = [goes_on(layer, more[n::2], copy.deepcopy(cache)) for n in range(2)]
    cache.repeat(2)
    assert error(goes_on(layer, more, cache), torch.stack(right, 1).flatten(0, 1)) < LIMIT


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda c: pickle.loads(pickle.dumps(c))])
@entries
@torch.no_grad()
def test_a_copy_goes_on_with_the_same_layer(entry, copied):
    layer, x, cache = begun(entry)
    again = copied(cache)
    assert error(goes_on(layer, x[:, 3:], again), goes_on(layer, x[:, 3:], cache)) < LIMIT
    with pytest.raises(ValueError, match="another layer filled this cache"):
        goes_on(entry.build().eval(), x[:, 3:4], again)


@torch.no_grad()
def test_a_layer_copied_along_with_its_cache_is_its_layer():
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    cache = layer.new_cache()
    layer(x[:, :3], is_causal=True, cache=cache)
    twin, notes = copy.deepcopy((layer, cache))
    assert torch.equal(twin(x[:, 3:], is_causal=True, cache=notes), layer(x[:, 3:], is_causal=True, cache=cache))
    with pytest.raises(ValueError, match="another layer filled this cache"):
        layer(x[:, 3:], is_causal=True, cache=notes)


@pytest.mark.parametrize("entry", READING, ids=lambda e: e.name)
@pytest.mark.parametrize("move", ["reorder", "repeat", "pickle"])
@torch.no_grad()
def test_a_memory_moves_with_its_rows(entry, move):
    layer, x = entry.build().eval(), entry.words(3)
    memory = entry.memory(layer)[0]
    cache = layer.new_cache()
    layer(x, memory, cache=cache)
    right = layer(x, memory, cache=copy.deepcopy(cache))
    rows = {"reorder": [2, 0], "repeat": [0, 0, 1, 1, 2, 2], "pickle": [0, 1, 2]}[move]
    if move == "pickle":
        cache = pickle.loads(pickle.dumps(cache))
    else:
        getattr(cache, move)(rows if move == "reorder" else 2)
    moved = memory[rows].clone()
    if type(cache).__name__ == "FeedbackMemory":  # a memory that is no longer the newest tensor is one more step
        return
    with pytest.raises(ValueError, match="another one of shape"):
        layer(x[rows], moved + 1, cache=copy.deepcopy(cache))
    assert error(layer(x[rows], moved, cache=cache), right[rows]) < LIMIT


@torch.no_grad()
def test_feedback_takes_steps_back():
    layer, x, steps = mha.FeedbackAttention(6, 3, steps=9), torch.randn(2, 1, 6), torch.randn(4, 2, 1, 6)
    cache = layer.new_cache()
    for one in steps[:2]:
        right = layer(x, one, cache=cache)
    layer(x, steps[2], cache=cache)
    cache.crop(1)
    assert error(layer(x, steps[1], cache=cache), right) < LIMIT
    assert cache.length == 2


@pytest.mark.parametrize("cache", [StateCache(), WindowCache(3)])
@torch.no_grad()
def test_what_has_forgotten_cannot_go_back(cache):
    kind = mha.LinearAttention if isinstance(cache, StateCache) else mha.MultiHeadAttention
    kind(6, 2)(torch.randn(1, 3, 6), is_causal=True, cache=cache)
    cache.crop(3)  # nothing to forget
    for length, reason in ((2, "does not know any more"), (0, "does not know any more"), (4, "only 3 tokens were fed")):
        with pytest.raises(ValueError, match=reason):
            cache.crop(length)
        with pytest.raises(ValueError, match=reason):
            cache.length = length
    assert cache.length == 3


def test_moves_that_make_no_sense_are_refused(reader):
    cache = mha.KeyValueCache()
    cache.update(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4))
    with pytest.raises(ValueError, match=r"length = 4: only 3 tokens were fed, 0 to 3 can stay"):
        cache.crop(4)
    with pytest.raises(ValueError, match="length = -1: it must be at least 0"):
        cache.crop(-1)
    for rows in ([0.5], [[0]], []):
        with pytest.raises(ValueError, match="rows = "):
            cache.reorder(rows)
    with pytest.raises(ValueError, match=r"rows = \[2\].*numbers of batch entries"):
        cache.reorder([2])
    with pytest.raises(ValueError, match="times = 0"):
        cache.repeat(0)
    assert cache.length == 3


@torch.no_grad()
def test_padding_moves_with_its_rows():
    for layer in (mha.MultiHeadAttention(6, 2), mha.LinearAttention(6, 2)):
        x, more = torch.randn(2, 3, 6), torch.randn(2, 2, 6)
        cache = layer.new_cache(9, padding=[2, 0])
        layer(x, is_causal=True, cache=cache)
        right = layer(more, is_causal=True, cache=copy.deepcopy(cache))
        cache.reorder([1, 0])
        assert error(layer(more[[1, 0]], is_causal=True, cache=cache), right[[1, 0]]) < LIMIT


@torch.no_grad()
def test_a_whole_model_takes_a_draft_back_and_moves_its_rows():
    model = LanguageModel(11, 8, 2, layers=2).eval()
    words = torch.randint(0, 11, (2, 6))
    right, caches = model(words), model.decoder.new_cache(9)
    model(words[:, :3], cache=caches)
    model(words[:, :2], cache=caches)
    caches.crop(3)
    caches.reorder([1, 0])
    caches.repeat(2)
    rows = [1, 1, 0, 0]
    assert error(model(words[rows, 3:], cache=caches), right[rows, 3:]) < LIMIT
    windows = mha.layers.ModelCache([mha.KeyValueCache(), WindowCache(3)])
    model(words[:, :3], cache=windows)
    with pytest.raises(ValueError, match="WindowCache does not know any more"):
        windows.length = 2
    assert [one.length for one in windows] == [3, 3]  # where one layer cannot go back, none does


@torch.no_grad()
def test_a_translator_moves_the_rows_of_both_caches():
    model = EncoderDecoder(11, 12, 8, 2, layers=1).eval()
    source, target = torch.randint(0, 11, (2, 5)), torch.randint(0, 12, (2, 4))
    memory = model.encode(source)
    right, caches = model.decode(target, memory), model.decoder.new_cache(9)
    model.decode(target[:, :2], memory, cache=caches)
    caches.reorder([1, 0])
    found = model.decode(target[[1, 0], 2:], memory[[1, 0]], cache=caches)
    assert error(found, right[[1, 0], 2:]) < LIMIT


def test_a_memory_refuses_other_calls():
    with pytest.raises(ValueError, match="KeyValueCache holds no memory"):
        mha.KeyValueCache().held()
    assert MemoryCache().length == 0


# ---- what is kept was made with yesterday's parameters, or from yesterday's memory


def loads(layer):
    layer.load_state_dict({name: w + 1 for name, w in layer.state_dict().items()})


def assigns(layer):
    layer.load_state_dict({name: w + 1 for name, w in layer.state_dict().items()}, assign=True)


def learns(layer):
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.Adam(layer.parameters()).step()


@pytest.mark.parametrize("change", [loads, assigns, learns])
@pytest.mark.parametrize("entry", [*GROWING, *READING], ids=lambda e: e.name)
@torch.no_grad()
def test_new_parameters_do_not_go_on_with_old_keys(entry, change):
    if entry in READING:
        layer, x = entry.build().eval(), entry.words(3)
        cache, memory = layer.new_cache(), entry.memory(layer)[0]
        layer(x, memory, cache=cache)
    else:
        layer, x, cache = begun(entry)
    twin = copy.deepcopy(cache)
    change(layer)
    for kept in (cache, twin):
        with pytest.raises(ValueError, match=r"parameters of \w+ were changed after this cache was filled.*new_cache"):
            layer(x, memory, cache=kept) if entry in READING else goes_on(layer, x[:, 3:], kept)


@torch.no_grad()
def test_what_the_cache_does_not_depend_on_may_change():
    layer, x = mha.MultiHeadAttention(6, 2), torch.randn(2, 3, 6)
    cache = layer.new_cache()
    layer(x, is_causal=True, cache=cache)
    learns(nn.Linear(2, 2))  # another model learns
    nn.init.zeros_(layer.W_o.bias)
    layer(x, is_causal=True, cache=cache)
    loads(layer)
    cache.crop(0)  # nothing is kept: it begins anew
    layer(x, is_causal=True, cache=cache)
    assert error(cache._k[:, :, :3], layer.project(x)[1]) < LIMIT


@pytest.mark.parametrize("value", [False, True])
def test_a_memory_that_changes_under_inference_mode_is_noticed(value):
    layer = mha.MultiHeadAttention(6, 2)
    with torch.inference_mode():
        x, memory, cache = torch.randn(2, 1, 6), torch.randn(2, 4, 6), MemoryCache()
        memory[1, 3] = torch.nan  # padding
        given = (memory, memory.clone()) if value else (memory,)
        for _ in range(2):
            layer(x, *given, cache=cache)
        given[-1][0, 0] += 1
        with pytest.raises(ValueError, match="was changed in place after this cache had read it"):
            layer(x, *given, cache=cache)
