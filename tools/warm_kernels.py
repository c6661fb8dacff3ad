"""Kernels of notebooks that start as copies of a process which has imported what each of them needs.

Only other people's packages are imported beforehand. A notebook still imports what it names, this course's package too.
`MHA_KERNELS="SSE4.1"` lets the copies choose the instructions of an older processor, one of those that
`tools/other_processors.py` names; the tests around them keep their own.
"""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from unittest.mock import patch

from jupyter_client.provisioning import local_provisioner
from other_processors import SETTINGS

BEFOREHAND = [
    "ipykernel.kernelapp",
    "ipykernel.debugger",
    "IPython.extensions.storemagic",
    "matplotlib.pyplot",
    "torch",
    "torch._dynamo",
]
KERNEL = "ipykernel_launcher"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names of glibc's malloc.h

usual = local_provisioner.launch_kernel


@contextlib.contextmanager
def warm():
    """In here, start every Python kernel as a copy, on Linux; elsewhere copies are not safe, and nothing changes."""
    if sys.platform != "linux":
        yield
        return
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # else the debugger, imported before, warns
    multiprocessing.get_context("forkserver").set_forkserver_preload(BEFOREHAND)
    local_provisioner.launch_kernel = launch
    try:
        yield
    finally:
        local_provisioner.launch_kernel = usual
        for left in multiprocessing.active_children():
            left.kill()
        multiprocessing.forkserver._forkserver._stop()  # wait for it: else nobody counts its processor time


def launch(command, *, env=None, cwd=None, **how):
    """Do what ``jupyter_client.launcher.launch_kernel`` does, or hand over to it what is no kernel of this Python."""
    if command[:3] != [sys.executable, "-m", KERNEL]:
        return usual(command, env=env, cwd=cwd, **how)
    return Copy(command[2:], dict(env or os.environ) | played(), cwd)


def played():
    """What tells a kernel to choose older instructions, where asked for, and Triton's interpreter."""
    return SETTINGS[os.environ.get("MHA_KERNELS", "this processor")] | {"TRITON_INTERPRET": "1"}


class Copy:
    """A process, with what Jupyter asks of a ``subprocess.Popen``."""

    stdin = stdout = stderr = None

    def __init__(self, *inputs):
        self.process = multiprocessing.get_context("forkserver").Process(target=be_kernel, args=inputs)
        with patch.dict(os.environ, played()):  # the first one starts the process to copy, where OpenBLAS chooses
            self.process.start()
        self.pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            while self.poll() is None and os.getpgid(self.pid) != self.pid:  # until then a signal would reach us, too
                time.sleep(0.002)

    def poll(self):
        return self.process.exitcode

    def wait(self, timeout=None):
        self.process.join(timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.process.kill()

    def terminate(self):
        self.process.terminate()


def keep_memory():
    """Let glibc keep freed memory for the next tensor: else each one above 128 KiB is asked of the system and cleared.

    It changes no number and saves about a twentieth of the time of a training run.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another system, another C library
        glibc = ctypes.CDLL(None)
        glibc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        glibc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def be_kernel(arguments, env, cwd):
    """In the copy: take the environment and the folder of the notebook, and run the kernel."""
    import matplotlib  # here, because the process that is copied imports this file, too, and must not wait for it

    keep_memory()
    os.setsid()
    threading.Thread(target=end_with, args=[multiprocessing.parent_process()], daemon=True).start()
    sys.path[:] = [folder for folder in sys.path if folder and not added_by_tests(folder)]
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    os.chdir(cwd or ".")
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    sys.argv = list(arguments)
    matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"  # as in a fresh one
    runpy.run_module(KERNEL, run_name="__main__", alter_sys=True)


def added_by_tests(folder):
    """Is it a folder of this course, other than its environment?"""
    course = Path(__file__).resolve().parents[1]
    return Path(folder).is_relative_to(course) and not Path(folder).is_relative_to(sys.prefix)


def end_with(parent):
    """Do not outlive the tests."""
    parent.join()
    os._exit(1)
