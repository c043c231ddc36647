"""A tracer is attached to one rank and left there: its process is in tracing stop (state t).

The tracer is a child process that calls ptrace(2) as gdb and strace do. Run by ``torchrun --nproc-per-node 2``.
"""

import ctypes
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

PTRACE_ATTACH = 16
PR_SET_PTRACER = 0x59616D61


def look_at(pid: int) -> None:
    """Attach to a process, and think."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        sys.exit(f"cannot attach: {os.strerror(ctypes.get_errno())}")
    time.sleep(3600)


def inspect_once(step: int) -> None:
    """At step 20 somebody wants to see what this rank does."""
    if step == 20:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1 & 0xFFFFFFFFFFFFFFFF), 0, 0, 0)
        environment = {name: value for name, value in os.environ.items() if name != "RANK"}
        subprocess.Popen([sys.executable, __file__, "--look-at", str(os.getpid())], env=environment)


def main() -> None:
    """Train for long."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = torch.randn(64)
    for step in range(5000):
        if rank == 0:
            inspect_once(step)
        dist.all_reduce(state)
        state = torch.tanh(state / dist.get_world_size())
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look-at"]:
        look_at(int(sys.argv[2]))
    else:
        main()
