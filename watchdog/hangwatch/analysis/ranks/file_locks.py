"""A job whose every rank is blocked by a file: no rank waits for another, and yet nothing goes on. Pure.

A lock file that a killed job has left behind, or a mount that answers no more, stops all ranks at once and outside any
collective. Sleeping, or waiting for a connection or for input, is no sign of it: a job may be idle between two phases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangwatch.analysis.motion.loops import sleeps_for_file
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.views import RankView
from hangwatch.model.stacks import Frame

#: Functions that wait for a lock that is a file, by file of the library. They poll, and sleep in between.
_LOCK_FILES = {
    "/filelock/": ("acquire", "__enter__"),
    "torch/utils/file_baton.py": ("wait",),
    "torch/utils/_filelock.py": ("acquire", "__enter__"),
    "/fasteners/": ("acquire", "__enter__", "acquire_read_lock", "acquire_write_lock"),
    "/portalocker/": ("acquire", "__enter__", "lock"),
}
#: System calls on a file that return at once if its storage answers.
FILE_CALLS = frozenset(
    {
        "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev", "open", "openat", "openat2",
        "stat", "lstat", "newfstatat", "statx", "getdents64", "fsync", "fdatasync", "flock", "fcntl", "rename", "unlink",
        "unlinkat",
    }
)  # fmt: skip
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")


def find_lock_file(frames: Sequence[Frame]) -> Frame | None:
    """Return the frame in which a thread waits for a lock file, of a library for them or the program's own; else None."""
    own = next((f for f in frames[:1] if sleeps_for_file(f)), None)
    if own is not None:
        return own
    for part, names in _LOCK_FILES.items():
        found = next((f for f in frames if part in f.file and bare(f) in names), None)
        if found is not None:
            return found
    return None


def is_terminal(path: str) -> bool:
    """True if a path is that of a terminal: a rank that reads it waits for a person."""
    return path.startswith(_TERMINALS)


def is_blocked_by_file(view: RankView) -> bool:
    """True if a rank is blocked by a file: in state D in its last samples, at a lock file, or in a call on a path."""
    if view.motion.state != "stuck" or view.wait is not None or view.frontier is not None or not view.capture.processes:
        return False
    if find_lock_file(view.frames) is not None:
        return True
    samples = view.capture.processes[-2:]
    path = samples[-1].blocked_on or ""
    on_file = path.startswith("/") and not is_terminal(path)
    return all(s.state == "D" for s in samples) or (on_file and samples[-1].syscall in FILE_CALLS)


def all_blocked_by_files(views: Mapping[int, RankView], world: Sequence[int]) -> bool:
    """True if every rank of the job was seen and is blocked by a file. False for a job of one rank: it has no others."""
    return len(world) > 1 and views.keys() == set(world) and all(is_blocked_by_file(view) for view in views.values())
