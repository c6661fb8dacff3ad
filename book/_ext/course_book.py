"""Small repairs of the built pages: formulas without another host, Python in the page, lighter pages, a first page.

Where npm has installed MathJax (package.json), formulas are drawn here, and no page asks another host for anything.
Without it the pages load it from Sphinx's usual address. Cells tagged `try-it` run in the page by MicroPython, which
npm installs too.
"""

import html
import json
import re
import shutil
from copy import deepcopy
from pathlib import Path

import yaml
from course_card import choose_card, draw_card, draw_chapters, offer_card
from course_exercises import offer_exercises
from course_figures import draw_figures
from course_first import draw_first
from course_formulas import draw_formulas
from course_icons import shrink_icons
from course_live import load_figures
from course_plan import plan
from course_readers import addresses
from course_styles import drop_unused, join_styles, let_scripts_wait, put_in_what_is_imported
from docutils import nodes
from sphinx.util import logging

logger = logging.getLogger(__name__)

MICROPYTHON = Path("node_modules", "@micropython", "micropython-webassembly-pyscript")
RUNNABLE = re.compile(r'<div class="[^"]*\btag_try-it\b')
RUNNER = "".join(f'<script defer src="{{up}}_static/{name}.js"></script>' for name in ("python", "tryit")) + "</head>"

# The theme's icons are in its web font too; this script draws them again and is the heaviest thing on every page.
ICONS = re.compile(r"\s*<(?:script|link)\b[^>]*fontawesome\.js[^>]*>(?:\s*</script>)?")

# Sphinx's own search, which every page would load and none uses: see course_search.py.
OTHER_SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js"></script>')

# The theme asks every box of code in one go whether it scrolls: hundreds of layouts while the page answers nobody.
AT_ONCE = "e=>{e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1}"
ONE_BY_ONE = "(e,i)=>setTimeout(()=>{e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1},i)"

# Every exercise and every solution repeats these two ids; nothing points to them, and an id must be unique in a page.
EAGER_IMAGES = re.compile(r"<img (?![^>]*\bloading=)(?=[^>]*_images/)")  # pictures of a chapter, not the logo
REPEATED_IDS = re.compile(r' id="(?:exercise|solution)-content"')
FOR_ALL = [  # what who listens to a page, or speaks to it, needs otherwise: (pattern, what to write)
    # the theme's name for its button differs from the words on it; the logo stands in no part of the page
    (re.compile(r'(<button class="btn search-button-field [^>]*?) title="Search" aria-label="Search"'), r"\1"),
    (re.compile(r'<div id="pst-primary-sidebar" '), r'\g<0>role="region" aria-label="The book" '),
    # the arrow that opens the pages under a page
    (re.compile(r'<summary>(?=<span class="toctree-toggle")'), '<summary aria-label="Pages under this one">'),
    (re.compile(r'<aside class="margin'), '<aside role="note" class="margin'),  # no part of the page beside its text
    (re.compile(r'<th class="head([^"]*)"><p></p></th>'), r'<td class="head\1"></td>'),
]
AUTO = re.compile(r'(<html\b[^>]*\bdata-theme=)"auto"')  # a script chooses; without one, no color is set
OLD_ROLE = 'role="doc-biblioentry"'  # deprecated in Digital Publishing WAI-ARIA 1.1: an entry of a list is a list item

FIRST_PAGE = """<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={url}">
<meta name="description" content="{title}: the first page of the course.">
<title>{title}</title>
</head>
<body><p><a href="{url}">{title}</a></p></body>
</html>
"""


def offer_to_run(app, config):
    """Offer Colab and Binder where the address of the repository is known: no button may lead nowhere."""
    address = addresses.asked("COURSE_REPOSITORY")
    if not address:
        return
    launch = {"binderhub_url": "https://mybinder.org", "colab_url": "https://colab.research.google.com"}
    launch["notebook_interface"] = "jupyterlab"
    branch = {"repository_branch": addresses.BRANCH, "path_to_docs": ""}  # with the notebooks for readers
    config.html_theme_options |= {"repository_url": address, **branch}
    config.html_theme_options |= {"launch_buttons": launch, "use_repository_button": True, "use_issues_button": True}


def copy_micropython(app):
    """Copy what runs Python in a page: MicroPython with its license, and the course's plain-Python functions."""
    source, target = Path(app.srcdir) / MICROPYTHON, Path(app.outdir) / "_static" / "vendor" / "micropython"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("micropython.mjs", "micropython.wasm", "README.md", "package.json"):
        shutil.copy2(source / name, target / name)
    shutil.copy2(Path(app.srcdir) / "mha" / "reference.py", target / "reference.py")
    (target / "LICENSE").write_text(
        "MIT License. Copyright (c) Damien P. George and others, micropython.org\n", "utf-8"
    )


def can_run_python(app):
    """Whether Python can run in the pages; if not, they show the same cells without an editor."""
    return (Path(app.srcdir) / MICROPYTHON / "micropython.wasm").is_file()


def tidy(page):
    """Take out of one page what is repeated or not needed, and let pictures wait until the reader comes to them."""
    page = ICONS.sub("", page) if "fontawesome.js" in page else page  # looking for the name first is much faster
    page = OTHER_SEARCH.sub("", page)
    page = fold_parts(page)
    for pattern, better in FOR_ALL:
        page = pattern.sub(better, page)
    page = REPEATED_IDS.sub("", page).replace(OLD_ROLE, 'role="listitem"')
    page = AUTO.sub(r'\1"light"', page)
    return EAGER_IMAGES.sub('<img loading="lazy" ', page)


def with_runner(page, up):
    """Load the script that runs cells, on the pages that have some; `up` leads from the page to the root."""
    return page.replace("</head>", RUNNER.format(up=up), 1) if RUNNABLE.search(page) else page


def tidy_all(folder, *, runs=False):
    """Tidy all pages, let those with cells to try run them, and remove the theme's icon script itself."""
    for path in folder.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        new = tidy(page)
        if runs and "tryit.js" not in new:
            new = with_runner(new, "../" * (len(path.relative_to(folder).parts) - 1))
        if new != page:
            path.write_text(new, encoding="utf-8")
    for script in (folder / "_static" / "scripts").glob("fontawesome.js*"):
        script.unlink()


def let_the_reader_in(folder):
    """Let the theme's script ask one box of code at a time: the page can answer its reader in between."""
    script = folder / "_static" / "scripts" / "pydata-sphinx-theme.js"
    if script.is_file():
        script.write_text(script.read_text(encoding="utf-8").replace(AT_ONCE, ONE_BY_ONE), encoding="utf-8")


def write_first_page(app):
    """Lead from index.html to the first page of the course, with a link where a browser does not follow by itself."""
    url, title = app.builder.get_target_uri(app.config.root_doc), html.escape(app.config.project)
    page = FIRST_PAGE.format(lang=app.config.language, url=url, title=title)
    (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


DESCRIPTION = re.compile(r'(<meta (?:name="description"|property="og:description") content=")[^"]*')
POINTS = re.compile(r"^- (.*?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL)


def describe_page(app, name, template, context, doctree):
    """Describe a notebook by what it shows, and pages without a text of their own, such as the search."""
    if doctree is None:
        text = f"{context.get('title') or name} – {app.config.project}"
        context["metatags"] = f'{context.get("metatags", "")}<meta name="description" content="{html.escape(text)}" />'
    elif text := what_it_shows(Path(app.srcdir) / f"{name}.ipynb"):
        context["metatags"] = DESCRIPTION.sub(lambda tag: tag[1] + html.escape(text), context.get("metatags", ""))


def what_it_shows(notebook):
    """The points "After this chapter you can" of a chapter, in one sentence; of a side room, its first paragraph."""
    if not notebook.is_file():
        return ""
    first = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
    paragraphs = first.split("\n\n")[2:]  # after the title and the minutes
    points = [" ".join(point.rstrip(".").split()) for point in POINTS.findall(first)]
    text = f"You learn to {'; '.join(points)}." if points else " ".join(" ".join(paragraphs[:1]).split())
    text = re.sub(r"\[([^]]*)\]\([^)]*\)|\{\w+(?::\w+)?\}`[^`]*`", r"\1", text)
    return re.sub(r"[*`$\\]", "", text)[:200]


def course_map(folder):
    """A table for each part, from the first cell of each notebook: question, both times, and what it needs."""
    parts = yaml.safe_load((folder.parent / "book" / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    begins = {Path(part["chapters"][0]["file"]).name: part["caption"] for part in parts}
    lines, sums = [], [0, 0]
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        if path.stem in begins:
            lines += ["", f"### {begins[path.stem]}", ""]
            lines += ["| chapter | to read | exercises | it needs |", "|---|---|---|---|"]
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        says = r"\*\*(\d+) min to read · (\d+) min of exercises\*\* · You need: (.*?)\n\n"
        *times, needs = re.search(says, first, re.DOTALL).groups()
        sums = [total + int(time) for total, time in zip(sums, times, strict=True)]
        needs = re.sub(r"\]\((\d\d_)", r"](../notebooks/\1", " ".join(needs.split()))
        title = first.splitlines()[0].removeprefix("# ")
        lines.append(
            f"| {path.stem[:2]} [{title}](../notebooks/{path.name}) | {times[0]}\xa0min | {times[1]}\xa0min | {needs} |"
        )
    lines += ["", f"All chapters together: {sums[0]:,} minutes to read, and {sums[1]:,} minutes of exercises."]
    return "\n".join(lines)


def quiz(match):
    """The questions of one chapter as HTML, for a page that is no notebook."""
    from mha.course.quiz import ask

    return f"```{{raw}} html\n{ask(match[1])._repr_html_()}\n```"


def cover_view():
    """The two heads of the running example, to look at on the cover."""
    import torch

    from mha import HeadView, attention_weights, split_heads
    from mha.reference import EXAMPLE

    x = torch.tensor(EXAMPLE["x"], dtype=torch.float64)[None]
    q, k = (split_heads(x @ torch.tensor(EXAMPLE[name]).double(), EXAMPLE["heads"]) for name in ("w_q", "w_k"))
    view = HeadView(attention_weights(q, k), EXAMPLE["words"], name="two heads", together=True)
    return f"```{{raw}} html\n{view._repr_html_()}\n```"


CAPTION = re.compile(r'<p aria-level="2" class="caption" role="heading"><span class="caption-text">(.*?)</span></p>')
CONTENTS = re.compile(r'<nav class="bd-links bd-docs-nav".*?</nav>', re.DOTALL)


def fold_parts(page):
    """Fold the parts in the list of pages at the side; the part to which this page belongs stays open."""

    def folded(found):
        before, *parts = CAPTION.split(found[0])
        for caption, part in zip(parts[::2], parts[1::2], strict=True):
            inside, _, after = part.rpartition("</ul>")
            state = " open" if 'class="current nav' in inside else ""
            name = f'<span role="heading" aria-level="2">{caption}</span>'
            before += f'<details class="part"{state}><summary>{name}</summary>{inside}</ul></details>{after}'
        return before

    return CONTENTS.sub(folded, page)


def fill_in(app, name, source):
    """Write what a page asks for in a comment: the map of the course, a quiz, or the view on the cover."""
    if "<!-- head-view -->" in source[0]:
        source[0] = source[0].replace("<!-- head-view -->", cover_view())
    if "<!-- course-map -->" in source[0]:
        source[0] = source[0].replace("<!-- course-map -->", course_map(Path(app.srcdir) / "notebooks"))
    source[0] = re.sub(r"<!-- quiz (\w+) -->", quiz, source[0])
    source[0] = plan(source[0], Path(app.srcdir))


def count_again(app, env, names):
    """Give Sphinx its own numbers back: it writes every page anew whose number differs from the last time."""
    env.toc_secnumbers, env.toc_fignumbers = getattr(env, "counted", (env.toc_secnumbers, env.toc_fignumbers))
    for title in env.titles.values():
        title.attributes.pop("secnumber", None)  # ours is no list, which Sphinx's contents would count further


def keep_numbers(app, env):
    """Give chapters and side rooms the number of their file, such as 04 or 04b, in headings, figures and exercises."""
    env.counted = deepcopy((env.toc_secnumbers, env.toc_fignumbers))
    for name in env.found_docs:
        found = re.match(r"notebooks/(\d\d[a-z]?)_", name)
        if not found:
            continue
        number = found[1]
        env.titles[name]["secnumber"] = (number,)
        env.toc_secnumbers[name] = {}
        for entry in env.tocs[name].findall(nodes.reference):
            own = (
                (number,) if entry["anchorname"] == "" else None
            )  # a section without an entry is given that of its page
            env.toc_secnumbers[name][entry["anchorname"]] = entry["secnumber"] = own
        for kind, figures in env.toc_fignumbers.get(name, {}).items():
            env.toc_fignumbers[name][kind] = {label: (number, n) for n, label in enumerate(figures, 1)}
    return []


def finish(app, exception):
    """Repair what was written, unless the build failed."""
    if exception is None and app.builder.format == "html":
        draw_formulas(Path(app.srcdir), Path(app.outdir))
        if can_run_python(app):
            copy_micropython(app)
        else:
            logger.info("MicroPython is not installed (npm install): the pages show Python and do not run it.")
        tidy_all(Path(app.outdir), runs=can_run_python(app))
        draw_figures(Path(app.srcdir), Path(app.outdir))
        load_figures(Path(app.outdir))
        offer_exercises(Path(app.srcdir), Path(app.outdir), runs=can_run_python(app))
        draw_first(Path(app.outdir))
        let_the_reader_in(Path(app.outdir))
        write_first_page(app)
        join_styles(Path(app.outdir))
        let_scripts_wait(Path(app.outdir))
        put_in_what_is_imported(Path(app.outdir))
        draw_card(Path(app.outdir))


def lighten(app, exception):
    """Take out of the style sheets and the fonts of icons what no page needs."""
    if exception is None and app.builder.format == "html":
        drop_unused(Path(app.srcdir), Path(app.outdir))
        shrink_icons(Path(app.outdir))


def setup(app):
    app.connect("config-inited", offer_to_run)
    app.connect("config-inited", offer_card)
    app.connect("source-read", fill_in)
    app.connect("env-before-read-docs", count_again)
    app.connect("env-get-updated", keep_numbers, priority=900)
    app.connect("html-page-context", describe_page, priority=900)  # after the preview was written
    app.connect("html-page-context", choose_card, priority=400)  # before the preview is written
    app.connect("build-finished", draw_chapters)
    app.connect("build-finished", finish, priority=400)  # before the theme's own redirect is written
    app.connect("build-finished", lighten, priority=900)  # after the last style sheets are written
    return {"parallel_read_safe": True, "parallel_write_safe": True}
