"""The search of the built book: what readers type leads to the section that answers it."""

from pathlib import Path

import pytest
import yaml
from programs import load

ROOT = Path(__file__).resolve().parents[3]
SEARCHES = yaml.safe_load(Path(__file__).with_name("searches.yml").read_text(encoding="utf-8"))
BASE = load("book/_ext/course_search.py")
EXPLAINED = BASE.explained(ROOT / "book")
PLACES = {name: [page for other, page in EXPLAINED if other == name] for name, _ in EXPLAINED}
FIRST = {  # the field's own names, and the page that must come first
    "RoPE": "08_positions", "GQA": "13_cache_and_sharing", "MLA": "16_compress", "KV cache": "13_cache_and_sharing",
    "FlashAttention": "12_counting_cost", "DeltaNet": "17_overwrite", "attention sink": "15_say_nothing",
    "GPU": "12_counting_cost", "quantization": "12b_batches_contexts_bits", "perplexity": "01_why_attention",
    "padding": "03_masking", "token": "01_why_attention", "tensor parallelism": "14_across_machines",
    "entmax": "23_sparsify", "num_key_value_heads": "13_cache_and_sharing", "sink": "15_say_nothing",
    "multi-head": "04_why_many_heads", "ALiBi": "08_positions", "prune": "11_pruning_heads",
    "dead heads": "11_pruning_heads", "多头注意力": "04_why_many_heads", "因果掩码": "03_masking",
}  # fmt: skip
FIND = """typed => globalThis.found ? found(typed).found.map(one => [one.page, one.heading, one.all, one.last])
  : (globalThis.found = courseSearch.finder(courseIndex), [])"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ask(browser, address):
    """Search in the built index, with the scripts of its page; gives [page, heading, all words, last]."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(f"{address}/search.html?q=softmax")
        tab.wait_for_selector("#search-results li a", timeout=20_000)
        tab.evaluate(FIND, "")
        yield lambda typed: tab.evaluate(FIND, typed)


def test_the_list_is_long():
    assert len({one["typed"] for one in SEARCHES}) == len(SEARCHES) >= 40


@pytest.mark.parametrize("one", SEARCHES, ids=lambda one: one["typed"])
def test_the_answer_is_among_the_first_three(ask, one):
    found = [f"{page.partition('/')[2]} § {heading}" for page, heading, *_ in ask(one["typed"])[:3]]
    wanted = tuple(place if "§" in place else f"{place} §" for place in one["finds"])
    assert any(place.startswith(wanted) for place in found), found


@pytest.mark.parametrize("one", [one for one in BASE.asked(ROOT / "book") if one[2]], ids=lambda one: one[0][0])
def test_what_readers_ask_leads_to_the_section_that_is_named(ask, one):
    headings = [heading for page, heading, *_ in ask(one[0][0]) if page == one[1]]
    assert BASE.plain(headings[0]).startswith(BASE.plain(one[2]))


@pytest.mark.parametrize("name", PLACES)
def test_a_name_leads_to_the_page_that_explains_it(ask, name):
    found = list(dict.fromkeys(page for page, *_ in ask(name)))
    assert set(PLACES[name]) <= set(found[:5])


@pytest.mark.parametrize(("name", "page"), FIRST.items())
def test_the_page_of_a_standard_name_comes_first(ask, name, page):
    assert ask(name)[0][0] == f"notebooks/{page}"


@pytest.mark.parametrize("typed", ["Voita 2019", "rotary positions", "write attention", "注意力 掩码"])
def test_all_words_come_before_some_and_references_last(ask, typed):
    order = [(not all_words, last) for _, _, all_words, last in ask(typed)]
    assert order
    assert order == sorted(order)


def test_nothing_is_found_of_what_is_not_there(ask):
    assert ask("zzyzx") == []
