"""The search without a built book: what the index keeps of a page, and what is found in a small index made here."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from programs import load
from sphinx import addnodes

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"
SCRIPTS = [STATIC / "search" / f"{name}.js" for name in ("words", "index", "find")]
NODE = shutil.which("node")
BASE = load("book/_ext/course_search.py")

with_node = pytest.mark.skipif(not NODE, reason="Node is not here")


# ---- What is kept of a page


def described(name, text):
    """A function as autodoc describes it."""
    arguments = addnodes.desc_parameterlist("", "", addnodes.desc_parameter("", "kv_heads: int = 1"))
    signature = addnodes.desc_signature("", "", nodes.Text(name.rpartition(".")[2]), arguments, ids=[name])
    return addnodes.desc("", signature, addnodes.desc_content("", nodes.paragraph("", text)))


def test_a_section_keeps_its_text_and_the_names_in_its_code():
    page = publish_doctree("Top\n===\n\n5 min to read\n\nOne.\n\nPart\n----\n\nA **KV cache** of ``n_rows``.\n")
    section = page.next_node(nodes.section, include_self=False)  # docutils lifts the title of the page
    section += nodes.literal_block("", "from_plain(x, n_rows)  # of_no_use", language="ipython3")
    section += nodes.literal_block("", "printed_result", language="none")
    section += described("mha.layers.repeat_heads", "Repeat them.")
    assert BASE.sections(page) == [
        ["part", "Part", "A KV cache of n_rows.", "from_plain", ["KV cache"]],
        ["mha.layers.repeat_heads", "mha.layers.repeat_heads", "Repeat them.", "kv_heads", []],
    ]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("x = rotate_half(q) + k", "rotate_half"),
        ("def loss(model):\n    return model.norm", "loss norm"),
        ("cache = DynamicCache(config)", "DynamicCache"),
        ("import torch\nfrom mha import attend", "torch attend"),
        ("for row in rows: print('repeat_kv', row)  # from_plain", "print"),
        ('"""Says from_plain."""\nif not weights: pass', ""),
        ("a, b, left_count = 1e-3, 2_000, rows_left", ""),
        ("attend(q, key_padding_mask=mask)", "attend key_padding_mask"),
    ],
)
def test_the_names_in_code_are_those_that_somebody_may_look_for(code, names):
    assert " ".join(BASE.names_in(code)) == names


def part(anchor, heading, text="", code="", strong=()):
    return [anchor, heading, text, code, list(strong)]


@pytest.mark.parametrize(
    ("names", "hint", "where"),
    [
        (["sparsemax"], "is called **sparsemax**", "b"),  # the sentence of terms.yml
        (["KV cache"], "", "c"),  # the heading
        (["latent"], "", "d"),  # bold
        (["repeat_kv"], "", "d"),  # code
        (["anything"], "how large", "e"),  # the beginning of a heading
        (["no such thing"], "", "a"),  # the page
    ],
)
def test_a_name_leads_to_the_section_that_explains_it(names, hint, where):
    page = [
        part("a", "A chapter", "It tells how large a cache is."),
        part("b", "Zeros", "The result is called sparsemax. The latent is short."),
        part("c", "The KV cache, step by step", "Rows."),
        part("d", "Short", "A latent.", "repeat_kv", ["latent"]),
        part("e", "How large is it?", "Gigabytes."),
    ]
    assert BASE.place_of(names, hint, page) == where


def test_names_of_one_thing_are_paired_across_languages():
    groups = BASE.same(ROOT / "book")
    assert ["causal", "因果"] in groups  # two in one row: each with its own
    assert ["softmax", "归一化指数函数"] in groups
    assert ["ablation", "消融"] in groups
    assert all(len(set(group)) == len(group) > 1 for group in groups)


def test_what_readers_ask_leads_to_pages_that_exist():
    for typed, page, _ in BASE.asked(ROOT / "book"):
        assert typed
        assert any((ROOT / f"{page}{kind}").is_file() for kind in (".ipynb", ".md")), page


def test_what_says_nothing_is_left_out_of_the_index():
    code = "print shape the_rare_name"
    many = {f"notebooks/{n}": ("A", [part("a", "A", "Text.", code)]) for n in range(BASE.COMMON + 1)}
    table = {"book/checkers": ("Checkers", [part("a", "A", "softmax – 8 of 8 – not divided\na head – 9 of 9")])}
    pages = BASE.index(many | table, ROOT / "book")["pages"]
    assert pages[0] == ["notebooks/0", "A", [0, "A", "Text.", "the_rare_name"]], "the usual anchor, too"
    assert pages[-1][2:] == [[0, "A", "softmax\na head"]]


# ---- What is found


PAGES = {
    "notebooks/02_why_scale": (
        "Scaled dot products: why divide by √d_k?",
        [
            part("scale", "Scaled dot products: why divide by √d_k?", "Scores grow with the width, so divide by √d_k."),
            part("soft", "Experiment: when it is not enough", "QK-norm brings queries and keys to length 1."),
        ],
    ),
    "notebooks/03_masking": (
        "Causal and padding masks",
        [
            part("masks", "Causal and padding masks", "A mask hides the future."),
            part("rows", "Rows with nothing to look at", "With left padding a row is empty, and the output is NaN."),
        ],
    ),
    "notebooks/04_why_many_heads": (
        "Why many heads: what can eight small ones do?",
        [part("heads", "Why many heads: what can eight small ones do?", "Multi-head attention has several heads.")],
    ),
    "notebooks/08_positions": (
        "Positional encodings (RoPE, ALiBi)",
        [
            part("positions", "Positional encodings (RoPE, ALiBi)", "Where is a token?"),
            part("pairing", "A bug from the wild: RoPE with the other pairing", "Two layouts.", "rotate_halves"),
            part("ex", "Exercise: RoPE with a cache", "Rotary positions with an offset in a cache."),
        ],
    ),
    "notebooks/13_cache_and_sharing": (
        "KV cache, MQA, GQA",
        [
            part("cache", "KV cache, MQA, GQA", "Keys and values are kept."),
            part("large", "How large does the KV cache get?", "Two gigabytes of GPU memory for each sequence."),
            part("tile", "Which KV head is read?", "Each group reads one.", "repeat_kv"),
            part("more", "More", "A KV cache."),
            part("again", "Again", "A KV cache."),
        ],
    ),
    "book/references": (
        "References",
        [part("refs", "References", "Rotary positions, KV cache, GQA, left padding, offset, NaN output, layouts.")],
    ),
    "book/package": ("The package", [part("mha.attend", "mha.attend", "Attend.", "from_plain ReleasedAttention")]),
    "book/zh": (
        "中文导读",
        [
            part("zh", "中文导读", "本页介绍整个课程。"),
            part("zh-02", "第二章", "点积的方差随维度增长,所以缩放点积要除以根号 d_k,否则 softmax 会饱和。"),
            part("zh-13", "第十三章", "键值缓存占用显存,分组查询注意力让多个头共享键和值。"),
        ],
    ),
}  # fmt: skip

RUN = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8")), find = courseSearch.finder(given.index);
const told = given.asked.map((asked) => {
  const {units, missing, found} = find(asked);
  return {missing, parts: units.map((unit) => unit.own.join(" ")), found: found.map((one) => ({
    place: `${one.page.split("/")[1]}#${one.anchor}`, all: one.all, score: one.score,
    quote: courseSearch.quote(one, units), marked: courseSearch.marked(courseSearch.quote(one, units).text, units),
  }))};
});
console.log(JSON.stringify(told));
"""


def search(*asked, pages=PAGES):
    """What is found for each of some questions in some pages."""
    program = "\n".join([*(path.read_text("utf8") for path in SCRIPTS), RUN])
    given = json.dumps({"index": BASE.index(pages, ROOT / "book"), "asked": asked})
    ran = subprocess.run([NODE, "-e", program], input=given, capture_output=True, encoding="utf8", check=True)
    return json.loads(ran.stdout)


def places(one):
    return [found["place"] for found in one["found"]]


FIRST = {
    "rotate_halves": "08_positions#pairing",
    "rotate halves": "08_positions#pairing",  # in parts
    "rotatehalv": "08_positions#pairing",  # still being typed
    "repeat_kv": "13_cache_and_sharing#tile",
    "released attention": "package#mha.attend",  # ReleasedAttention
    "from_plain": "package#mha.attend",
    "key_padding_mask": "03_masking#masks",  # what it is called in prose
    "GQA": "13_cache_and_sharing#cache",  # the heading
    "grouped-query attention": "13_cache_and_sharing#cache",  # what GQA stands for
    "KV cache size": "13_cache_and_sharing#large",
    "QK-norm": "02_why_scale#soft",
    "RoPE": "08_positions#positions",
    "rotary positions offset": "08_positions#ex",
    "RoPE offset": "08_positions#ex",  # the text says it in other words
    "sqrt dk": "02_why_scale#scale",
    "why is my attention output NaN with left padding": "03_masking#rows",
    "layouts": "08_positions#pairing",  # before the references, which are shorter
}
CHINESE = {
    "缩放点积为什么除以根号dk": ("zh#zh-02", "02_why_scale#scale"),
    "为什么除以根号dk": ("zh#zh-02", "02_why_scale#scale"),
    "键值缓存 显存": ("zh#zh-13", "13_cache_and_sharing#large"),
    "多头注意力 掩码": (None, "04_why_many_heads#heads", "03_masking#masks"),  # on no Chinese page
    "方差随维度": ("zh#zh-02",),  # no term of any list
}


@pytest.fixture(scope="module")
def found():
    """All questions of this file, asked in one process."""
    return dict(zip([*FIRST, *CHINESE], search(*FIRST, *CHINESE), strict=True))


@with_node
@pytest.mark.parametrize(("typed", "place"), FIRST.items())
def test_the_section_that_answers_comes_first(found, typed, place):
    assert places(found[typed])[0] == place


@with_node
@pytest.mark.parametrize("typed", CHINESE)
def test_chinese_is_found_by_pairs_of_signs_and_by_known_terms(found, typed):
    assert set(CHINESE[typed]) - {None} <= set(places(found[typed])[:3])


@with_node
@pytest.mark.parametrize("typed", [name for name, wanted in CHINESE.items() if len(wanted) > 1])
def test_chinese_terms_lead_to_the_english_section_where_no_page_is_chinese(typed):
    english = {name: page for name, page in PAGES.items() if name != "book/zh"}
    assert set(CHINESE[typed][1:]) <= set(places(search(typed, pages=english)[0])[:3])


@with_node
def test_who_asks_in_chinese_reads_chinese_first():
    english = part("a", "Shared", "Several heads share keys and values (共享键).")
    pages = {
        "notebooks/a": ("A", [english]),
        "book/b": ("B", [part("b", "共同", "多个头共享键和值,缓存因此小得多,解码也更快。")]),
    }
    assert places(search("共享键", pages=pages)[0]) == ["b#b", "a#a"]


@with_node
def test_all_words_come_before_any_word_and_references_last(found):
    flags = [[one["all"] for one in answer["found"]] for answer in found.values()]
    assert all(some == sorted(some, reverse=True) for some in flags)
    assert any(len(set(some)) == 2 for some in flags)
    with_references = [places(answer) for answer in found.values() if "references#refs" in places(answer)]
    assert with_references
    assert all(some[-1] == "references#refs" for some in with_references)


@with_node
def test_a_page_has_three_places_at_most():
    pages = [place.partition("#")[0] for place in places(search("KV cache")[0])]
    assert pages.count("13_cache_and_sharing") == 3


@with_node
def test_a_sentence_is_asked_without_its_small_words_and_says_what_is_nowhere():
    sentence, words = search("Why does my softmax saturate with the xylophone?", "softmax saturate xylophone")
    assert sentence["parts"] == words["parts"]
    assert sentence["missing"] == ["saturate", "xylophone"]
    assert places(sentence) == places(words)
    assert search("how to ")[0]["parts"] == ["how", "to"], "nothing else was asked"


@with_node
def test_the_last_word_may_be_half_typed_and_a_finished_one_may_not():
    typing, finished = search("ma", "ma ")
    assert places(typing)[0] == "03_masking#masks"
    assert places(finished) == []


@with_node
def test_a_result_quotes_the_sentence_and_marks_the_words(found):
    first = found["why is my attention output NaN with left padding"]["found"][0]
    assert first["quote"] == {"text": "With left padding a row is empty, and the output is NaN."}
    assert "".join(words for words, _ in first["marked"]) == first["quote"]["text"]
    assert [words for words, asked in first["marked"] if asked] == ["left", "padding", "output", "NaN"]
    only_in_code = found["rotate_halves"]["found"][0]
    assert only_in_code["quote"] == {"text": "rotate_halves", "code": True}


@with_node
def test_a_long_sentence_is_cut_around_the_words():
    long = " ".join(["nothing"] * 60 + ["needle"] + ["nothing"] * 60)
    one = search("needle", pages={"book/page": ("Page", [part("a", "Page", long)])})[0]["found"][0]
    assert len(one["quote"]["text"]) < 260
    assert one["quote"]["text"].startswith("… ")
    assert ["needle", True] in one["marked"]


def test_the_scripts_are_small():
    for path in (*SCRIPTS, STATIC / "search.js"):
        assert path.stat().st_size <= 8192, path.name


# ---- In the browser


BOX = """<div class="bd-search-container"><h1>Search</h1><form><input name=q type=search aria-label=Search></form>
<div id="search-results"></div></div><dialog id="pst-search-dialog" aria-label="Search"><form><input name=q type=search
aria-label="Search"></form></dialog><button onclick="document.querySelector('dialog').showModal()">Open</button>"""


@pytest.fixture
def page(opened, tmp_path):
    """A page with both fields of a search, beside a small index."""
    (tmp_path / "_static" / "search").mkdir(parents=True)
    for path in SCRIPTS:
        shutil.copy(path, tmp_path / "_static" / "search")
    (tmp_path / "sentences.js").write_text(BASE.written(BASE.index(PAGES, ROOT / "book")), "utf8")
    script = (STATIC / "search.js").read_text("utf8")
    return opened(f"{BOX}<script>{script}</script>", "Search", (390, 844))


LOADED = "typeof courseIndex !== 'undefined'"
NOW = "document.activeElement.textContent || document.activeElement.tagName"


@pytest.mark.slow
def test_results_come_while_typing_and_are_counted_aloud(page):
    box = page.locator(".bd-search-container input")
    box.press_sequentially("rotary positions offs")
    page.wait_for_selector("#search-results li:first-child > a[href$='08_positions.html#ex']")
    first = page.locator("#search-results li").first
    assert first.locator(".search-page").inner_text() == "08 Positional encodings (RoPE, ALiBi)"
    assert "Rotary" in first.locator("mark").all_inner_texts()
    status = page.locator("#search-results [role=status]")
    assert re.fullmatch(r"\d+ sections? with all words, \d+ with some of them\.", status.inner_text())
    assert page.locator(".search-some").inner_text() == "With some of the words"
    box.fill("xylophone")
    page.wait_for_function("document.querySelector('#search-results li') === null")
    assert status.inner_text().startswith("Nothing found.")
    box.fill("")
    page.wait_for_function("document.querySelector('#search-results').innerText.startsWith('A name')")


@pytest.mark.slow
def test_the_index_is_loaded_when_somebody_begins_to_search(opened, page):
    script = (STATIC / "search.js").read_text("utf8")
    elsewhere = opened(f"{BOX.partition('</div></div>')[2]}<script>{script}</script>", "A page", (390, 844))
    elsewhere.wait_for_timeout(300)
    assert not elsewhere.evaluate(LOADED)
    elsewhere.get_by_text("Open").click()
    elsewhere.wait_for_function(LOADED)


@pytest.mark.slow
def test_the_dialog_answers_and_is_used_with_the_keyboard(page):
    page.get_by_text("Open").click()
    page.locator("dialog input").fill("KV cache")
    page.wait_for_selector("dialog li a")
    titles = page.locator("dialog li > a").all_inner_texts()
    for key, now in (("Down", titles[0]), ("Down", titles[1]), ("Up", titles[0]), ("Up", "INPUT"), ("Down", titles[0])):
        page.keyboard.press(f"Arrow{key}")
        assert page.evaluate(NOW) == now
    page.keyboard.press("Escape")
    page.wait_for_function("!document.querySelector('dialog').open")
    assert page.locator("#search-results li").count() == 0, "the page has a field of its own"


@pytest.mark.slow
def test_results_have_no_barrier(page, violations):
    page.locator(".bd-search-container input").fill("rotary positions offs")
    page.wait_for_selector("#search-results li")
    assert violations(page, 5) == {}


@pytest.mark.slow
def test_a_broken_index_is_no_silence(page, tmp_path):
    (tmp_path / "sentences.js").write_text("")
    page.reload()
    page.locator(".bd-search-container input").fill("softmax")
    page.wait_for_function("document.querySelector('#search-results').innerText === 'The index could not be loaded.'")
