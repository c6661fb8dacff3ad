"""Serve the built book on this computer only, and open it in the browser."""

import argparse
import contextlib
import sys
import threading
import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BOOK = Path(__file__).resolve().parents[1] / "_build" / "html"


class Quiet(SimpleHTTPRequestHandler):
    """The standard file server, without a line of log for every picture."""

    def log_message(self, *args):
        pass


def open_server(folder, port):
    """A server on `port`, or on any free port when that one is taken."""
    handler = partial(Quiet, directory=str(folder))
    with contextlib.suppress(OSError):
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--no-browser", action="store_true", help="only serve; print the address")
    options = parser.parse_args()
    if not (BOOK / "index.html").exists():
        print("There is no built book yet. Build it first:  make book", file=sys.stderr)
        return 1
    server = open_server(BOOK, options.port)
    address = f"http://localhost:{server.server_port}/"
    print(f"The book is at {address}   (Ctrl+C ends this)", flush=True)
    if not options.no_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
