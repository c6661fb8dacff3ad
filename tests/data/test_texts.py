"""Texts for reading heads: Python with the truth about names, repeats, brackets; and the optimizer that learns them."""

import hashlib
from pathlib import Path

import pytest
import torch

from mha.analysis import head_detection, patterns
from mha.data import python_source, texts
from mha.data.python_source import read_program
from mha.models import LanguageModel, Muon, MuonAndAdamW

PARTS = {"training": "37bb115661e91235", "test": "9ad162b535691716"}


# Tokens, separated by spaces, and which name goes back to which, as Python 3.11 cuts these programs.
F_STRINGS = {
    "x = f'{a}'\n": (
        "x = f'{a}' ⏎",
        [],
    ),
    "a = 1\nx = f'' + f'{a}' + a\n": (
        "a = 1 ⏎ x = f'' + f'{a}' + a ⏎",
        [[10, 0]],
    ),
    'a = 1\nx = rf"\\d{a}" "b" F\'{a:{a}.{a}}\'\n': (
        'a = 1 ⏎ x = rf"\\d{a}" "b" F\'{a:{a}.{a}}\' ⏎',
        [],
    ),
    'a = 1\nx = f"{a!r:>{a}}{{b}}" + a\n': (
        'a = 1 ⏎ x = f"{a!r:>{a}}{{b}}" + a ⏎',
        [[8, 0]],
    ),
    'a = 1\nx = f"ä{a}é" + a; y = a\n': (
        'a = 1 ⏎ x = f"ä{a}é" + a ; y = a ⏎',
        [[8, 0], [12, 0]],
    ),
    'a = 1\nx = f"""\n{a}\n{f\'{a}\'}"""\ny = a\n': (
        'a = 1 ⏎ x = f"""\n{a}\n{f\'{a}\'}""" ⏎ y = a ⏎',
        [[10, 0]],
    ),
    'def f(a):\n    return f"{a:{f\'{a}\'}}", f"{(b:=a)}", b, a\n': (
        'def f ( a ) : ⏎ ⇥ return f"{a:{f\'{a}\'}}" , f"{(b:=a)}" , b , a ⏎ ⇤',
        [[15, 3]],
    ),
    'a = 1\nx = (f"{a}"\n     f"{a}", a)\n': (
        'a = 1 ⏎ x = ( f"{a}" f"{a}" , a ) ⏎',
        [[10, 0]],
    ),
    'a = 1\nb = f"{a=}" if a else f\'{a["k"]}\'\n': (
        'a = 1 ⏎ b = f"{a=}" if a else f\'{a["k"]}\' ⏎',
        [[8, 0]],
    ),
    "a = f'{x:%Y-%m}'  # a {comment}\n": (
        "a = f'{x:%Y-%m}' ⏎",
        [],
    ),
    "f'\\N{HYPHEN}{a}', 1 if a else 2": (
        "f'\\N{HYPHEN}{a}' , 1 if a else 2 ⏎",
        [],
    ),
}


def random(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def some():
    """A few functions, quickly read."""
    return python_source.course_code("test")[:60]


@pytest.fixture(scope="module")
def code(some):
    return python_source.numbered(some, size=40)


# ---- Python


def test_the_frozen_code_does_not_change():
    text = Path(python_source.__file__).with_name("course_code.txt").read_text("utf8")
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "8e3b6b4ec1f95134"
    assert text.isascii()


def test_each_function_is_read_by_itself_and_is_in_one_part_only():
    parts = [[" ".join(program.tokens) for program in python_source.course_code(part)] for part in PARTS]
    assert [len(functions) for functions in parts] == [1049, 210]
    together = [*parts[0], *parts[1]]
    assert len(set(together)) == len(together)
    assert all(function.startswith("def ") for function in together)


def test_the_frozen_code_is_the_same_in_every_python():
    for part, known in PARTS.items():
        programs = python_source.course_code(part)
        tokens = "\0".join(token for program in programs for token in program.tokens)
        names = str([program.names.nonzero().tolist() for program in programs])
        assert hashlib.sha256((tokens + names).encode()).hexdigest()[:16] == known


def test_a_part_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="part = 'lessons': take 'training' or 'test'"):
        python_source.course_code("lessons")


@pytest.mark.parametrize("source", F_STRINGS)
def test_an_f_string_is_one_token_as_in_python_3_11(source):
    program = read_program(source)
    tokens, names = F_STRINGS[source]
    assert program.tokens == tokens.split(" ")
    assert program.names.nonzero().tolist() == names


def test_rare_names_keep_one_stand_in_within_a_function():
    source = "def f(first, second):\n    third = first\n    return first + second + third + 12345 + 'x'\n"
    code = python_source.numbered([read_program(source)], size=1)
    shown = [code.names[i] for i in code.tokens]
    written = read_program(source).tokens
    stand_ins = {name: {s for s, w in zip(shown, written, strict=True) if w == name} for name in ("second", "third")}
    assert all(len(of) == 1 and next(iter(of)).startswith("name") for of in stand_ins.values())
    assert stand_ins["second"] != stand_ins["third"]
    assert shown[written.index("12345")] == "0…"
    assert shown[written.index("'x'")] == "'…'"


def test_every_use_of_a_name_goes_back_to_the_same_word(code):
    words, names = python_source.pieces(code, 128, 40, generator=random())
    assert words.shape == (128, 40)
    assert names.shape == (128, 40, 40)
    batch, use, place = names.nonzero(as_tuple=True)
    assert len(batch) > 50
    assert (place < use).all()
    assert torch.equal(words[batch, use], words[batch, place])
    assert names.sum(-1).max() == 1


def test_the_truth_about_names_is_that_of_the_whole_function(some, code):
    uses = torch.cat([program.names.any(1) for program in some])
    assert torch.equal(code.set_at >= 0, uses)
    ends = torch.tensor([len(program.tokens) for program in some]).cumsum(0)
    use = uses.nonzero()[:, 0]
    assert torch.equal(torch.bucketize(use, ends, right=True), torch.bucketize(code.set_at[use], ends, right=True))


def test_other_texts_use_the_same_numbers(code):
    other = python_source.numbered(python_source.course_code("test")[60:80], like=code)
    assert other.names == code.names
    assert other.tokens.max() < len(code.names)


# ---- made from rules


def test_repeats_repeat_with_their_period():
    rows = texts.repeats(50, 64, generator=random(), periods=(5, 9))
    for row in rows:
        assert any(torch.equal(row[p:], row[:-p]) for p in range(5, 10))
    assert rows.max() < 64


def test_no_fixed_offset_finds_what_follows_in_repeats():
    rows = texts.repeats(200, 64, generator=random())
    assert head_detection.best_offset(patterns.induction(rows))[1] < 0.3


def test_a_mixed_batch_is_one_quarter_python(code):
    batch = texts.mixed(code, 12, 40, generator=random())
    assert torch.equal(batch[:3], python_source.pieces(code, 3, 40, generator=random())[0])
    assert batch.shape == (12, 40)
    assert all(any(torch.equal(row[p:], row[:-p]) for p in range(4, 21)) for row in batch[3:])


def test_brackets_close_in_the_right_order():
    rows = texts.brackets(40, 50, generator=random())
    matched = patterns.matching(rows, texts.PAIRS)
    assert torch.equal(matched.any(-1), (rows >= 3) & (rows < 6))  # every closing bracket closes one of its kind
    assert rows.unique().tolist() == list(range(7)) == list(range(len(texts.BRACKETS)))
    assert 0.3 < (rows == 6).float().mean() < 0.4
    assert (texts.brackets(4, 50, generator=random(), filler=0.0) < 6).all()


def test_filler_spreads_the_distances():
    for filler, low, high in ((0.0, 0.3, 1.0), (0.35, 0.0, 0.2)):
        rows = texts.brackets(200, 32, generator=random(), filler=filler)
        assert low < head_detection.best_offset(patterns.still_open(rows, texts.PAIRS, nested=True))[1] < high


def test_filler_alone_is_refused():
    with pytest.raises(ValueError, match=r"filler = 1\.0"):
        texts.brackets(1, 8, generator=random(), filler=1.0)


# ---- the optimizer


def test_matrices_inside_go_to_muon_and_everything_once():
    model = LanguageModel(9, 8, 2, layers=2)
    muon, other = MuonAndAdamW(model, model.decoder, 10).optimizers
    inside = {id(p) for g in muon.param_groups for p in g["params"]}
    assert inside == {id(p) for p in model.decoder.parameters() if p.ndim == 2}
    outside = {id(p) for g in other.param_groups for p in g["params"]}
    assert inside | outside == {id(p) for p in model.parameters()}
    assert not inside & outside


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has its Muon since 2.9")
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_muon_steps_as_torchs_does_without_its_rounding(shape):
    start, steps = torch.randn(shape), torch.randn(3, *shape)
    found = []
    for kind in (torch.optim.Muon, Muon):
        weight = torch.nn.Parameter(start.clone())
        optimizer = kind([weight], lr=0.1, weight_decay=0.2)
        for gradient in steps:
            weight.grad = gradient.clone()
            optimizer.step()
        found.append(weight.detach() - start)
    assert torch.allclose(*found, atol=0.03)
    assert not torch.equal(*found)


def test_rates_rise_stay_and_fall():
    model = torch.nn.Linear(3, 3)
    optimizer = MuonAndAdamW(model, model, 100, lr=0.5)
    rates = []
    for _ in range(100):
        rates.append(optimizer.optimizers[0].param_groups[0]["lr"])
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert rates[:2] == pytest.approx([0.025, 0.05])
    assert rates[20:50] == pytest.approx([0.5] * 30)
    assert rates[75] == pytest.approx(0.25)
    assert rates[99] == pytest.approx(0.01)


def test_every_weight_learns():
    torch.manual_seed(0)
    model = LanguageModel(9, 8, 2, layers=2)
    before = {name: p.clone() for name, p in model.named_parameters()}
    optimizer = MuonAndAdamW(model, model.decoder, 10)
    model(torch.randint(9, (4, 6), generator=random())).square().mean().backward()
    optimizer.step()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert still == {name for name in still if name.endswith("W_k.bias")}  # a key bias never matters
