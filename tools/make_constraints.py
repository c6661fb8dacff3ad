"""Write constraints.txt: one exact version of everything, for every supported Python and system.

Only names and versions are kept: no address of any package index, and none of the CUDA libraries
that torch brings along on Linux (a CPU torch must stay installable). The extra ``gpu`` has no versions here.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"  # the version that computed the numbers stored in the notebooks
CUDA_ONLY = ("cuda-", "nvidia-", "triton==")


def resolve(folder):
    """What uv chooses for all extras but ``gpu`` on Python 3.10 and later."""
    project = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]")[2]
    extras = set(re.findall(r"^(\w+) = \[", project.partition("\n[")[0], re.MULTILINE)) - {"gpu"}
    pin, out = folder / "pin.txt", folder / "out.txt"
    pin.write_text(TORCH + "\n")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "pyproject.toml"]
    command += [f"--extra={name}" for name in sorted(extras)]
    command += ["--universal", "--python-version", "3.10", "--no-header", "--no-annotate"]
    subprocess.run([*command, "--constraints", str(pin), "--output-file", str(out)], cwd=ROOT, check=True)
    return out.read_text().splitlines()


def main():
    with tempfile.TemporaryDirectory() as folder:
        lines = [line for line in resolve(Path(folder)) if not line.startswith(CUDA_ONLY)]
    strange = [line for line in lines if "==" not in line or "://" in line]
    if strange:
        print("These lines are not plain `name==version` lines; nothing was written:", *strange, sep="\n  ")
        return 1
    (ROOT / "constraints.txt").write_text("\n".join(lines) + "\n", newline="\n")
    print(f"constraints.txt: {len(lines)} lines. Run `make test` with them before you commit.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
