"""Who has a lock that is a file, or writes into the folder that it is for, without touching either: ``/proc`` alone is read.

May import ``sources.proc`` and the standard library. Whoever makes such a lock keeps the file open until the work is done
(``FileBaton`` of torch 2.4 to 2.13, filelock 3 and 4). What it has started to compile may outlive it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from hangwatch.sources.proc.blocking import access_mode, has_locked
from hangwatch.sources.proc.files import list_processes
from hangwatch.sources.proc.sockets import read_descriptors


def find_lock_holder(
    paths: Sequence[str], waiting: Collection[int], ranks: Collection[int] = ()
) -> tuple[str, int] | None:
    """Return a file and the process that has it open: a lock, or else one that it writes into the folder of a lock.

    None where nobody does. ``paths``: what the waiting call names, the lock file or its folder. ``waiting``: processes that are
    not looked at: whoever waits may open the file now and then, to see. ``ranks``: processes of which only a lock on the file
    itself counts, since they may use it or its folder for other reasons.
    """
    named = frozenset(path for path in paths if path != "/")
    work: tuple[str, int] | None = None
    for pid in sorted(list_processes()) if named else ():
        if pid == os.getpid() or pid in waiting:
            continue
        for descriptor, link in read_descriptors(pid):
            if pid in ranks:
                if link in named and has_locked(pid, descriptor):
                    return link, pid
                continue
            file = PurePosixPath(link)
            inside = str(file.parent) in named
            if link in named or (inside and "lock" in file.name):
                return link, pid
            if inside and work is None and access_mode(pid, descriptor):
                work = link, pid
    return work
