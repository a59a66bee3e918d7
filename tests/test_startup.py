import subprocess
import sys

import pytest

# Calls of a program with a result of 64 MB, after others in which the heap may grow; the pages that the
# system had to fetch in the usual one of them.
_SCRIPT = """
import resource, sys
from calib_jax._startup import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
import jax, jax.numpy as jnp
program = jax.jit(lambda x: x @ x.T)
x = jnp.ones((4096, 16))
for _ in range(20):
    program(x).block_until_ready()
fetched = []
for _ in range(21):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    program(x).block_until_ready()
    fetched.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(fetched)[10])
"""


def _page_faults(mode, monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    found = subprocess.run(
        [sys.executable, "-c", _SCRIPT, mode], capture_output=True, text=True, check=True
    )
    return int(found.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these settings")
def test_memory_that_is_kept_need_not_be_fetched_again(monkeypatch):
    without, kept = (_page_faults(mode, monkeypatch) for mode in ("plain", "keep"))
    assert without > 10_000  # 64 MB are 16,384 pages
    assert kept < without / 100


def test_ctrl_c_during_imports_is_one_line() -> None:
    script = (
        "import os, signal; from calib_jax._startup import interruptible_imports\n"
        "with interruptible_imports(): os.kill(os.getpid(), signal.SIGINT); import jax"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")
    after = script.replace("os.kill(os.getpid(), signal.SIGINT); import jax", "pass")
    script = f"{after}\nos.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "KeyboardInterrupt" in done.stderr, "the handler is put back"
