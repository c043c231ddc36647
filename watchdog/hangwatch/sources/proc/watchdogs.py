"""Torch's own watchdogs of NCCL, which ask the device ten times a second how far it is: do they run?

May import hangwatch.model and the other files here. Their threads are known by name (``pt_nccl_watchdg``; ``ncclCommWatchdog``
and ``Watchdog::run`` in ``ProcessGroupNCCL.cpp``, torch 2.4 to 2.13), one for each process group. About 10 us a thread of the
process.
"""

from __future__ import annotations

from hangwatch.model.processes import WatchdogSample
from hangwatch.sources.proc.files import inner_thread, list_folder, parse_stat, parse_switches, read_small

_NAME = "pt_nccl_watchdg"
#: A process with more threads is not asked.
_MOST_THREADS = 1024
#: How a thread waits, be it for its next turn. One that is to run and has no core to run on does not.
_ASLEEP = frozenset("SD")


def find_watchdogs(pid: int) -> tuple[WatchdogSample, ...]:
    """Those that are asleep now; none where there are too many threads to ask."""
    threads = [int(name) for name in list_folder(f"/proc/{pid}/task")]
    found = (_read(pid, thread) for thread in threads) if len(threads) <= _MOST_THREADS else ()
    return tuple(one for one in found if one is not None)


def _read(pid: int, thread: int) -> WatchdogSample | None:
    folder = f"/proc/{pid}/task/{thread}"
    stat = parse_stat(read_small(f"{folder}/stat", 2048) or b"")
    if stat is None or stat.name != _NAME or stat.state not in _ASLEEP:
        return None
    switches = parse_switches(read_small(f"{folder}/status", 8192) or b"")
    return WatchdogSample(inner_thread(pid, thread), switches) if switches is not None else None
