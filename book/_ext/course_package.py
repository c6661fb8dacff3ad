"""The pages on the package, written by autodoc from the docstrings: signatures, members, links to the chapters."""

import re
from pathlib import Path

import mha

TAUGHT = re.compile(r"^:Taught in: (.*)\.$")


def link_chapters(app, what, name, thing, options, lines):
    """Turn the topics behind "Taught in" into links to their chapters; "all chapters" stays as it is."""
    folder = Path(app.srcdir) / "notebooks"
    for number, line in enumerate(lines):
        if found := TAUGHT.match(line):
            names = [(topic, next(folder.glob(f"[0-9]*_{topic}.ipynb"), None)) for topic in found[1].split(", ")]
            links = [f":doc:`/notebooks/{path.stem}`" if path else topic for topic, path in names]
            lines[number] = f":Taught in: {' · '.join(links)}"


def skip_twins(app, what, name, thing, skip, options):
    """What ``mha`` itself offers is described there, and not again in the part that it comes from."""
    described = app.env.temp_data.get("autodoc:module", "mha")
    return True if described != "mha" and thing is getattr(mha, name, None) else None


def find_where_described(app, env, node, contnode):
    """A name is described in the part of the package that offers it, and its type is named by the file it stands in."""
    if node.get("refdomain") != "py" or not node["reftarget"].startswith("mha."):
        return None
    domain, short = env.get_domain("py"), node["reftarget"].rpartition(".")[2]
    part = ".".join(node["reftarget"].split(".")[:2])
    full = next((name for name in (f"mha.{short}", f"{part}.{short}") if name in domain.objects), None)
    asked = node["reftype"], full, node, contnode
    return full and domain.resolve_xref(env, node["refdoc"], app.builder, *asked)


def setup(app):
    app.connect("autodoc-process-docstring", link_chapters)
    app.connect("autodoc-skip-member", skip_twins)
    app.connect("missing-reference", find_where_described)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
