"""Figures that can be moved: a page that has some loads the scripts of those, and what released models keep.

A notebook or a page holds `<figure class="mha-live" data-live="cache">` with a line for readers without a script; the
script is `book/_static/live/cache.js`. Scripts are no modules, so that they work in a page that is opened as a file.
"""

import json
import re
from dataclasses import asdict

LIVE = re.compile(r'<figure class="mha-live" data-live="(\w+)"')
SCRIPT = '<script defer src="{up}_static/live/{name}.js"></script>'
SHOWN = (
    "Llama 3.1 8B", "Llama 3.1 70B", "Mistral 7B v0.1", "Gemma 3 27B", "gpt-oss-120b", "DeepSeek-V3", "DeepSeek-V3.2",
    "Qwen3-Next 80B-A3B",
)  # fmt: skip
LATENT = "DeepSeek-V3"  # whose sizes the figure of both forms of MLA begins with
KEPT = ("count", "row", "span", "every", "recent", "state")  # of a kind of layer: what its bytes follow from


def write_presets(folder):
    """Write the layers of some released models where the figures find them."""
    from mha.course import released

    models = {}
    for name in SHOWN:
        one = released.model(name)
        layers = [{field: getattr(kind, field) for field in KEPT} for kind in one.layers]
        for entry, kind in zip(layers, one.layers, strict=True):
            entry["index"] = None if kind.index is None else asdict(kind.index)
        first, plain = one.layers[0], [kind.kind for kind in one.layers] in (["full"], ["window"])
        models[name] = {"mix": one.mix, "layers": layers, "plain": plain, "kv": first.kv_heads, "width": first.value}
    one = released.model(LATENT).layers[0]
    latent = {"heads": one.heads, "width": one.head, "latent": one.value, "rotary": one.positions.width}
    text = f"mhaLive.presets = {json.dumps({'models': models, 'latent': latent}, separators=(',', ':'))};\n"
    place = folder / "_static" / "live"
    place.mkdir(parents=True, exist_ok=True)
    (place / "presets.js").write_text(text, "utf-8")


def load_figures(folder):
    """Load on each page the scripts of its figures, each once and in order."""
    write_presets(folder)
    for path in folder.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        names = dict.fromkeys(LIVE.findall(page))
        if names and "_static/live/core.js" not in page:
            up = "../" * (len(path.relative_to(folder).parts) - 1)
            scripts = "".join(SCRIPT.format(up=up, name=name) for name in ("core", "presets", *names))
            path.write_text(page.replace("</head>", f"{scripts}</head>", 1), encoding="utf-8")
