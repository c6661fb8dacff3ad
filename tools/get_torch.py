"""Get the right torch when nobody has said which: `make` calls this before it installs the rest.

    .venv/bin/python tools/get_torch.py

On Linux pip's torch brings the libraries of NVIDIA cards. Where no such card works, and where PyTorch's own index
answers within some seconds, the CPU build comes from there; in all other cases pip takes what is usual for the system.
One line says which, why, how large, and how to choose. The standard library is enough for this.
"""

import os
import platform
import re
import shutil
import ssl
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
INDEX = "https://download.pytorch.org/whl/cpu"
PATIENCE = 5  # seconds, for a name, a connection and the list of files together
SMALL, LARGE = "0.2 GB to fetch", "5 GB on the disk, most of it for NVIDIA cards"
CHOOSE = "To choose yourself: make book TORCH=cpu (or auto, or cu126)."


def wanted():
    """The version that constraints.txt names, "" if it names none."""
    found = re.search(r"^torch==([^\s;]+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def present():
    """The version that is installed, without the name of its build, "" if there is none."""
    try:
        return metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def has_card():
    """Whether an NVIDIA card works here: its own program must be there and list one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        found = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return False
    return found.returncode == 0 and "GPU" in found.stdout


def offers(index, version, patience=PATIENCE):
    """Whether an index answers soon and has this version for this Python and this processor."""
    name = rf"torch-{re.escape(version)}\+cpu-cp{sys.version_info[0]}{sys.version_info[1]}-\S*{platform.machine()}"
    found = []

    def ask():
        try:
            trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
            with urlopen(f"{index}/torch/", timeout=patience, context=trusted) as page:
                found.append(re.search(name, unquote(page.read().decode("utf-8", "replace"))))
        except (OSError, ValueError):
            pass

    thread = threading.Thread(target=ask, daemon=True)  # a name that is looked up knows no timeout
    thread.start()
    thread.join(patience)
    return any(found)


def fetch(version):
    """Install torch alone from PyTorch's index, and say whether that went well; the rest comes as pinned later."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    return subprocess.run([*pip, f"--index-url={INDEX}", f"torch=={version}"]).returncode == 0


def main():
    version = wanted()
    if not version or present() == version:
        return 0
    if sys.platform != "linux":
        print(f"torch {version}: pip's own, which is the right one here, {SMALL}.", flush=True)
    elif has_card():
        print(f"torch {version}: pip's own, because an NVIDIA card works here, {LARGE}. {CHOOSE}", flush=True)
    elif not offers(INDEX, version):
        why = "because PyTorch's own index did not answer with a CPU build"
        print(f"torch {version}: what pip finds, {why}; it may be {LARGE}. {CHOOSE}", flush=True)
    else:
        why = "because no NVIDIA card works here"
        print(f"torch {version}: the CPU build from PyTorch's own index, {why}, {SMALL}. {CHOOSE}", flush=True)
        if not fetch(version):
            print(f"That did not work. torch {version}: what pip finds; it may be {LARGE}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
