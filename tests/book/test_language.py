"""The words of the field: what the course never says, and what it says at most a few times in a chapter."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from chapters import CHAPTERS

ROOT = Path(__file__).resolve().parents[2]
RULES = yaml.safe_load(Path(__file__).with_name("language.yml").read_text(encoding="utf-8"))
FILES = sorted(
    path
    for pattern in ("README.md", "book/*.md", "book/*.yml", "notebooks/*.ipynb", "mha/**/*.py", "mha/course/quiz/*.yml")
    for path in ROOT.glob(pattern)
)


def prose(path):
    """The text of a file without addresses; of a notebook, sources, printed lines and alternative texts."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        parts = ["".join(cell["source"]) for cell in cells] + [
            json.dumps(cell["metadata"], ensure_ascii=False) for cell in cells
        ]
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        parts += ["".join(output.get("text", "")) for output in outputs]
        text = "\n".join(parts)
    return re.sub(r"\]\([^)\s]*\)|https?://\S+|\{cite\w*(?::\w+)?\}`[^`]*`|`[^`\n]*`", "]", text)


def found(path, rule):
    """What a rule finds in a file, with some words around it."""
    text = " ".join(prose(path).split())
    return [
        text[max(0, one.start() - 40) : one.end() + 30] for one in re.finditer(rule["pattern"], text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_speaks_the_language_of_the_field(path):
    for rule in RULES["fails"]:
        assert found(path, rule) == [], f"say: {rule['instead']} ({rule['why']})"
    for rule in RULES["warns"]:
        hits = found(path, rule)
        assert len(hits) <= rule["budget"], f"say: {rule['instead']} ({rule['why']}): {hits}"


def searched():
    """What people search for: the terms of the course and every name of the page of names."""
    terms = [entry["term"] for entry in yaml.safe_load((ROOT / "book/terms.yml").read_text(encoding="utf-8"))]
    rows = re.findall(r"^\| (.*) \|$", (ROOT / "book/names.md").read_text(encoding="utf-8"), re.MULTILINE)
    return terms + [name.strip(" `") for row in rows for cell in row.split(" | ")[:3] for name in cell.split(", ")]


def names_its_topic_and_asks(title, names):
    """Topic: question? The topic is a name that people search for."""
    topic, _, question = title.replace("-", " ").rpartition(": ")
    named = any(re.search(rf"\b{re.escape(name.replace('-', ' '))}s?\b", topic, re.IGNORECASE) for name in names)
    return named and "?" not in topic and question.endswith("?") and question[0] == question[0].lower()


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_title_names_its_topic_and_asks(path):
    first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    assert names_its_topic_and_asks(first.splitlines()[0].removeprefix("# "), searched())


@pytest.mark.parametrize(
    "title", ["How can one word mean two things?", "One for all: who pays?", "KV cache: Sharing", "A head? Which: why?"]
)
def test_a_title_without_topic_or_question_is_found(title):
    assert not names_its_topic_and_asks(title, ["KV cache", "head", "mask"])


if __name__ == "__main__":  # python tests/book/test_language.py FILE ...
    for name in sys.argv[1:]:
        for rule in [*RULES["fails"], *RULES["warns"]]:
            for hit in found(Path(name).resolve(), rule):
                print(f"{name}: … {hit} …   → {rule['instead']}")
