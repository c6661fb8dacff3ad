"""What every test starts from: annotations that are checked, float64, the same examples on every run.

``MHA_DEVICE=cuda python -m pytest -n 0 tests/layers`` runs the tests of the layers on a GPU: what they make without
saying where is made there, and random numbers are those of the processor.
"""

import contextlib
import os
import shutil
import zlib
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch
from live_figures import SIZES, body
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

jaxtyping.install_import_hook("mha", "beartype.beartype")  # before mha is imported: shapes are checked at every call

hypothesis.settings.register_profile("course", deadline=None, derandomize=True, database=None, max_examples=40)
hypothesis.settings.load_profile("course")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
SLOW = ("color-contrast", "target-size", "link-in-text-block")  # of axe's rules: they take most of its time
CHECK = """([more, without]) => axe.run(document, {
  resultTypes: ['violations'],
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', ...more],
  rules: {'label-content-name-mismatch': {enabled: true},
    ...Object.fromEntries(without.map(rule => [rule, {enabled: false}]))},
}).then(found => [found.passes.length, found.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)])])"""


@pytest.fixture(autouse=True)
def float64(request):
    """Compute in float64, from the same random numbers, whatever ran before.

    In every second test the modules of the package work on float64 while float32 is the default, as a reader's are
    free to do: then a forgotten ``dtype=`` shows.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        if zlib.crc32(request.node.nodeid.encode()) % 2:
            stack.enter_context(float32_inside())
        yield
    torch.set_default_dtype(before)


DEVICE = os.environ.get("MHA_DEVICE")


class Drawn(TorchFunctionMode):
    """Draw with a generator of the processor where it is, and bring the numbers where they are wanted.

    New tensors go to the default device, which a test may change; a tensor that is filled stays where it is.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        random = kwargs.get("generator")
        if not isinstance(random, torch.Generator) or random.device.type != "cpu" or kwargs.get("device") is not None:
            return function(*args, **kwargs)
        inside = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if not inside:
            return function(*args, **kwargs | {"device": "cpu"}).to(torch.get_default_device())
        if inside[0].device.type != "cpu" and function.__name__.endswith("_"):
            return inside[0].copy_(function(torch.empty_like(inside[0], device="cpu"), *args[1:], **kwargs))
        return function(*args, **kwargs)


def moves(path):
    """Whether the tests of a file run on another device."""
    return DEVICE is not None and Path(__file__).parent / "layers" in path.parents


def pytest_runtest_setup(item):
    """Bring the tensors that a test takes as parameters, which were made when its file was read."""
    if moves(item.path) and hasattr(item, "callspec"):
        given = item.callspec.params
        given.update({name: tree_map_only(torch.Tensor, lambda x: x.to(DEVICE), x) for name, x in given.items()})


@pytest.fixture(autouse=True)
def device(request):
    """Let the tests of the layers make their tensors on the device that MHA_DEVICE names."""
    if not moves(request.path):
        yield
        return
    torch.set_default_device(DEVICE)
    with Drawn():
        yield
    torch.set_default_device(None)


@contextlib.contextmanager
def float32_inside():
    """Make float32 the default while a module of the package computes."""
    outside = []

    def enter(module, _inputs):
        if type(module).__module__.startswith("mha."):
            outside.append(torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)

    def leave(module, _inputs, _output):
        if type(module).__module__.startswith("mha."):
            torch.set_default_dtype(outside.pop())

    hooks = torch.nn.modules.module
    with contextlib.ExitStack() as stack:
        stack.callback(hooks.register_module_forward_pre_hook(enter).remove)
        stack.callback(hooks.register_module_forward_hook(leave, always_call=True).remove)
        yield


@pytest.fixture
def reader():
    """Run the package as a reader does, without checked annotations: bad input meets the package's own messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")  # one process can drive only one browser at a time, and other files need theirs
def browser():
    """Chromium, driven by playwright; without it the tests that ask for it are skipped by name."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here: on Debian `sudo apt install chromium fonts-noto-cjk`, see book/set_up.md")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        yield chromium
        chromium.close()


WHOLE = """<!doctype html><html lang=en><meta charset=utf8><meta name=viewport content="width=device-width">
<title>{title}</title><style>:root{{color-scheme:light dark}}</style><body>{body}"""


@pytest.fixture
def opened(browser, tmp_path):
    """Open HTML in a page of its own; any error or request in the page fails the test at its end."""
    contexts, problems = [], []

    def open_it(body, title, size, theme="light", scripts=True):
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(WHOLE.format(title=title, body=body), "utf8")
        viewport = dict(zip(("width", "height"), size, strict=True))
        context = browser.new_context(viewport=viewport, color_scheme=theme, java_script_enabled=scripts)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda r: None if r.url.startswith("file:") else problems.append(r.url))
        tab.goto(path.as_uri())
        return tab

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def live(opened, tmp_path):
    """Open a page that holds nothing but one figure that can be moved."""

    def open_it(name, size="desktop", **how):
        tab = opened(body(name, tmp_path), "A figure", SIZES[size], **how)
        if how.get("scripts", True):
            tab.wait_for_selector(".mha-live .said")
        return tab

    return open_it


@pytest.fixture(scope="session")
def violations():
    """What axe finds against the rules of WCAG 2.2, levels A and AA, in an open page; more than ``passes`` hold.

    ``more`` names other groups of rules, such as "best-practice". Without ``contrast``, the slowest rule, this is left
    to another measure; what is ``quick`` also leaves out sizes of what is clicked and looks of links: pages share them.
    """
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install")
    axe = AXE.read_text(encoding="utf-8")

    def found_in(tab, passes, *more, contrast=True, quick=False):
        if not tab.evaluate("typeof axe === 'object'"):
            tab.evaluate(axe)
        without = SLOW if quick else () if contrast else SLOW[:1]
        held, found = tab.evaluate(CHECK, [more, without])
        assert held > passes
        return {rule: [html[:200] for html in places] for rule, places in found}

    return found_in
