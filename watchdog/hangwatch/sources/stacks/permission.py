"""Whether the memory of a process, and so its stacks, can be read: checked before a hang needs them.

May import hangwatch.model, hangwatch.sources' own parts and the standard library. Opening ``/proc/PID/mem`` is allowed by
the same check (``ptrace_may_access`` with PTRACE_MODE_ATTACH, kernel/ptrace.c, Linux 6.x) as ``process_vm_readv``, by which
py-spy reads; it takes microseconds, and the process cannot notice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from hangwatch.model.capture import Gap
from hangwatch.sources.stacks.readers import explain_failure, find_program
from hangwatch.sources.stacks.samples import READER


def check_stacks(pids: Iterable[int]) -> dict[int, Gap]:
    """Return the reason for each process whose stacks cannot be read. Processes that are gone are left out."""
    if find_program(READER) is None:
        return dict.fromkeys(pids, Gap("stacks", "py-spy is not installed", hint="pip install py-spy"))
    return {pid: gap for pid in pids if (gap := _check_memory(pid)) is not None}


def _check_memory(pid: int) -> Gap | None:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return explain_failure(pid, "permission denied", READER)
    except OSError:
        return None
    return None
