"""Whole sentences: each has a verb, and few paragraphs begin with a pronoun that stands for what was said before."""

import json
import re
from pathlib import Path

import pytest
import yaml
from chapters import CHAPTERS, ROOMS

WORDS = yaml.safe_load(Path(__file__).with_name("verbs.yml").read_text(encoding="utf-8"))
VERBS = {name: set(words.split()) for name, words in WORDS.items()}
SHARE, FEW = 0.05, 4  # sentences without a verb: this share of a chapter at most, or so many in a short room
PRONOUNS = 4  # paragraphs of a chapter at most that begin with one
LEFT_OUT = r"^#+ Sources.*|^:::+\{margin\}.*?^:::+|^```.*?^```|^:::+[^\n]*|^:\w+:[^\n]*"
BARE = re.compile(
    r"(?:So |But |And )?(?:It|They|This|That|These|Those|Both) "
    r"(?:is|are|was|were|has|have|do|does|can|may|[a-z]+[^\Ws]s)\b"
)


def paragraphs(path):
    """The paragraphs and list items of a notebook, without headings, tables, formulas, directives and sources."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "markdown" or text.startswith("*Running it yourself?"):
            continue
        for block in re.split(r"\n\s*\n", re.sub(LEFT_OUT, "", text, flags=re.S | re.M)):
            if not re.match(r"\s*(?:#|\||\$\$|<|\(|!\[|\*\*\d+ min|$)", block):
                yield from re.split(r"\n(?=\s*(?:[-*]|\d+\.)\s)", block.strip())


def sentences(paragraph):
    """The sentences of a paragraph, with MATH and CODE in place of both, without links and sources."""
    text = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", paragraph)
    for pattern, instead in (
        (r"\$\$.*?\$\$|\$[^$]*\$", "MATH"),
        (r"\{[\w:]+\}`[^`]*`", ""),
        (r"`[^`]*`", "CODE"),
        (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
        (r"[*_]{1,2}", ""),
    ):
        text = re.sub(pattern, instead, text, flags=re.S)
    return [one for one in re.split(r"""(?<=[.!?])["”)]?\s+(?=[A-Z"“(])""", " ".join(text.split())) if one]


def has_verb(sentence):
    """Whether a word of the sentence is a verb, as far as its neighbors tell."""
    words = re.findall(r"[a-z][a-z'’-]*|[:;,]|\d+", sentence.lower())
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        follows = before in VERBS["subjects"] or after in VERBS["before"] or after.isdigit()
        if word in VERBS["always"] or word.endswith(("n't", "n’t")):
            return True
        if word in VERBS["after_noun"] and before.isalpha() and before not in VERBS["not_after"] and after != "by":
            return True
        if word in VERBS["either"] and follows and before not in VERBS["not_after"]:
            return True
    return False


def without_verb(path):
    """The sentences of more than two words that have none, and how many sentences there are."""
    every = [one for block in paragraphs(path) for one in sentences(block) if len(re.findall(r"[A-Za-z]+", one)) > 2]
    return [one for one in every if not has_verb(one)], len(every)


@pytest.mark.parametrize("path", [*CHAPTERS, *ROOMS], ids=lambda path: path.stem)
def test_sentences_have_a_verb(path):
    found, count = without_verb(path)
    assert len(found) <= max(FEW, SHARE * count), found


@pytest.mark.parametrize("path", [*CHAPTERS, *ROOMS], ids=lambda path: path.stem)
def test_a_paragraph_names_what_it_is_about(path):
    assert len(bare := [block[:80] for block in paragraphs(path) if BARE.match(block)]) <= PRONOUNS, bare


@pytest.mark.parametrize(
    ("sentence", "there"),
    [
        ("No mask at all.", False),
        ("Norm and rotation in the wrong order.", False),
        ("The same picture, of another importance.", False),
        ("The matrix trained by one head.", False),
        ("A gate of zero silences a head.", True),
        ("Scores separate the layers.", True),
        ("Compare the weights.", True),
        ("The model learned nothing.", True),
        ("It doesn't matter.", True),
    ],
)
def test_a_verb_is_seen(sentence, there):
    assert has_verb(sentence) == there


@pytest.mark.parametrize(
    ("start", "bare"), [("This is the formula.", True), ("This layer is new.", False), ("It reads a third.", True)]
)
def test_a_bare_pronoun_is_seen(start, bare):
    assert bool(BARE.match(start)) == bare
