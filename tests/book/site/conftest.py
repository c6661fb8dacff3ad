"""The tests of the built pages: `make book` first. Plain `pytest` does not collect this folder; `make test` does."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "_build" / "html"


@pytest.fixture(scope="session")
def site():
    """The folder of the built book."""
    assert (SITE / "index.html").is_file(), "there is no built book in _build/html: make book"
    return SITE


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def address(site):
    """Serve the built book on this machine only, below the root as many hosts do; gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site.parent))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{site.name}"
    server.shutdown()
    server.server_close()
