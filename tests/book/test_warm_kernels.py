"""A kernel that is a copy differs in nothing that a notebook could lean on."""

import gc
import json
import os
import platform
import sys

import pytest
import warm_kernels
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel
from other_processors import capability, playable

ASK = """
import json, os, sys
import matplotlib.pyplot as plt
ours = sorted(name for name in sys.modules if name.split(".")[0] in ("mha", "tests", "conftest"))
place = {"path": sys.path, "folder": os.getcwd(), "own group": os.getpgid(0) == os.getpid()}
print(json.dumps(place | {"ours": ours, "backend": plt.get_backend(), "argv": sys.argv[1:2], "name": __name__}))
"""


PLAYED = "import json, torch; print(json.dumps(torch.backends.cpu.get_cpu_capability()))"


def answers(folder, question=ASK):
    kernel = RunningKernel(CURRENT_ENV_KERNEL_NAME, cwd=str(folder))
    try:
        asked = kernel.execute_cell_input(question)
        kernel.await_reply(asked, 60)
        while True:
            message = kernel.get_message("iopub", 10)
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
                return json.loads(message["content"]["text"])
    finally:
        kernel.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # nbval leaves one open for each kernel
@pytest.mark.skipif(sys.platform != "linux", reason="kernels are copied on Linux only")
def test_a_copied_kernel_finds_what_a_fresh_one_finds(tmp_path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)
    with monkeypatch.context() as cold:
        cold.setattr(warm_kernels.local_provisioner, "launch_kernel", warm_kernels.usual)
        fresh = answers(tmp_path)
    copied = answers(tmp_path)
    gc.collect()  # here, where the warning about those open files is expected, and not in some later test
    assert copied == fresh
    assert copied["ours"] == []
    assert copied["folder"] == str(tmp_path)
    assert copied["own group"], "a signal to it would reach the tests"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.skipif(sys.platform != "linux", reason="kernels are copied on Linux only")
def test_a_copied_kernel_plays_an_older_processor_where_asked(tmp_path, monkeypatch):
    if reason := playable(capability({}), platform.machine())["SSE4.1"]:
        pytest.skip(reason)
    monkeypatch.setenv("MHA_KERNELS", "SSE4.1")
    assert answers(tmp_path, PLAYED) == "DEFAULT"
    assert "ATEN_CPU_CAPABILITY" not in os.environ
    gc.collect()
