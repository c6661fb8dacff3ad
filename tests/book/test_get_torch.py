"""Which torch the first command takes, with and without a card, behind networks of every kind; nothing is fetched."""

import contextlib
import http.server
import os
import platform
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from programs import load

ROOT = Path(__file__).resolve().parents[2]
NAME = f"torch-9.8.7%2Bcpu-cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-manylinux_2_28_{platform.machine()}.whl"


@pytest.fixture
def tool(monkeypatch):
    """The program, where the course wants a version of torch that nobody has."""
    tool = load("tools/get_torch.py")
    monkeypatch.setattr(tool, "wanted", lambda: "9.8.7")
    monkeypatch.setattr(sys, "platform", "linux")
    return tool


@pytest.fixture
def index():
    """Serve one answer as an index of packages; ``answer["wait"]`` seconds late."""
    answer = {"text": f'<a href="/whl/cpu/{NAME}">a file</a>', "wait": 0, "status": 200}

    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(answer["wait"])
            with contextlib.suppress(BrokenPipeError):  # who asked has gone
                self.send_response(answer["status"])
                self.end_headers()
                self.wfile.write(answer["text"].encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answer["url"] = f"http://127.0.0.1:{server.server_port}/whl/cpu"
    yield answer
    server.shutdown()
    server.server_close()


def said(tool, monkeypatch, capsys, *, card=False, offered=True, works=True):
    """What the program says, and what it fetches."""
    fetched = []
    monkeypatch.setattr(tool, "has_card", lambda: card)
    monkeypatch.setattr(tool, "offers", lambda index, version: offered)
    monkeypatch.setattr(tool, "fetch", lambda version: fetched.append(version) or works)
    assert tool.main() == 0
    return capsys.readouterr().out.splitlines(), fetched


def test_without_a_card_the_small_torch_comes_from_pytorch_itself(tool, monkeypatch, capsys):
    (line,), fetched = said(tool, monkeypatch, capsys)
    assert fetched == ["9.8.7"]
    for told in ("9.8.7", "CPU build", "no NVIDIA card", "0.2 GB", "TORCH=cpu"):
        assert told in line


@pytest.mark.parametrize(("card", "why"), [(True, "an NVIDIA card works here"), (False, "did not answer")])
def test_with_a_card_or_without_an_answer_pip_chooses(tool, monkeypatch, capsys, card, why):
    (line,), fetched = said(tool, monkeypatch, capsys, card=card, offered=False)
    assert fetched == []
    for told in ("pip", why, "5 GB", "TORCH=cpu"):
        assert told in line


def test_a_failed_download_leaves_it_to_pip(tool, monkeypatch, capsys):
    lines, fetched = said(tool, monkeypatch, capsys, works=False)
    assert fetched == ["9.8.7"]
    assert "did not work" in lines[1]


def test_on_other_systems_pip_is_right(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    (line,), fetched = said(tool, monkeypatch, capsys)
    assert fetched == []
    assert "pip's own, which is the right one here" in line


def test_a_torch_that_is_there_stays_without_a_word(tool, monkeypatch, capsys):
    monkeypatch.setattr(tool, "present", lambda: "9.8.7")
    assert said(tool, monkeypatch, capsys) == ([], [])


def test_an_index_that_has_the_file_for_this_python_is_taken(tool, index):
    assert tool.offers(index["url"], "9.8.7")
    assert not tool.offers(index["url"], "9.8.8")
    index["text"] = index["text"].replace("cp3", "cp2")
    assert not tool.offers(index["url"], "9.8.7")


@pytest.mark.parametrize("status", [404, 503])
def test_an_index_that_refuses_is_not(tool, index, status):
    index["status"] = status
    assert not tool.offers(index["url"], "9.8.7")


def test_nothing_waits_for_a_slow_network(tool, index):
    index["wait"], start = 3, time.monotonic()
    assert not tool.offers(index["url"], "9.8.7", patience=0.2)
    assert time.monotonic() - start < 2


def test_nothing_waits_where_there_is_no_network(tool):
    start = time.monotonic()
    assert not tool.offers("http://127.0.0.1:9/whl/cpu", "9.8.7")
    assert not tool.offers("no address", "9.8.7")
    assert time.monotonic() - start < 2


@pytest.mark.skipif(os.name == "nt", reason="the program that plays the card is a shell script")
@pytest.mark.parametrize(
    ("script", "card"), [("echo 'GPU 0: a card'", True), ("echo 'GPU 0' && exit 9", False), ("echo none", False)]
)
def test_a_card_is_one_that_answers(tool, monkeypatch, tmp_path, script, card):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not tool.has_card()
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert tool.has_card() == card


def test_it_wants_the_torch_of_the_constraints_and_takes_it_alone(monkeypatch):
    tool = load("tools/get_torch.py")
    assert f"torch=={tool.wanted()}\n" in (ROOT / "constraints.txt").read_text()
    calls = []
    monkeypatch.setattr(subprocess, "run", lambda command: calls.append(command) or subprocess.CompletedProcess([], 1))
    assert tool.fetch("9.8.7") is False
    assert {"--no-deps", f"--index-url={tool.INDEX}", "torch==9.8.7"} <= set(calls[0])


@pytest.mark.skipif(os.name == "nt", reason="make")
@pytest.mark.parametrize(
    ("marks", "given", "asked"),
    [
        ([], [], r"get_torch\.py"),
        ([], ["TORCH=cu126"], "--torch-backend=cu126"),
        ([".torch-cpu"], [], "--torch-backend=cpu"),
        ([".torch-cpu"], ["TORCH=auto"], "--torch-backend=auto"),
    ],
)
def test_make_asks_only_where_nobody_has_chosen(tmp_path, marks, given, asked):
    """A choice is kept in the environment: new constraints take the new version of the same build."""
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "activate").write_text(str(environment))
    (environment / "bin" / "python").symlink_to(sys.executable)
    for name in (".made", *marks):
        (environment / name).touch()
        os.utime(environment / name, (1, 1))
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    command = ["make", "--dry-run", *given, ".venv/.with-book,test"]
    clean = {name: value for name, value in os.environ.items() if name not in ("TORCH", "MAKEFLAGS", "MAKELEVEL")}
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean)
    assert found.returncode == 0, found.stderr
    assert re.findall(r"get_torch\.py|--torch-backend=\w+", found.stdout) == re.findall(asked, found.stdout)
    assert re.search(asked, found.stdout)
    assert "pip --disable-pip-version-check install -c constraints.txt -e '.[book,test]'" in found.stdout
