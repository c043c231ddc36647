"""An agent's heaps are few, however many threads it has had."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from support import SOURCE_ROOT

#: Holds memory in many threads at once, and counts the heaps by glibc's own account of them (malloc_info(3)).
_THREADS = """
import ctypes, sys, threading
from hangwatch.agent.host.memory import bound_heaps, give_back

if sys.argv[1] == "bounded":
    bound_heaps()
libc, together = ctypes.CDLL(None), threading.Barrier(33)

def work():
    held = [bytes(2000) for _ in range(50)]
    together.wait()
    together.wait()

threads = [threading.Thread(target=work) for _ in range(32)]
for thread in threads:
    thread.start()
together.wait()
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
together.wait()
give_back()
print(open(sys.argv[2]).read().count("<heap nr="))
"""


@pytest.mark.usefixtures("real")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="another C library than glibc")
def test_threads_share_few_heaps(tmp_path: object) -> None:
    """Two for thirty-two threads at once, where there would be more."""

    def count(how: str) -> int:
        command = [sys.executable, "-c", _THREADS, how, f"{tmp_path}/info"]
        reported = subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE_ROOT)}
        )
        return int(reported.stdout)

    assert count("bounded") <= 2 < count("as it is")
