"""The processes of the node, remembered between readings, so that reading every second costs almost nothing.

May import hangwatch.sources' own parts and the standard library. One listing of ``/proc`` gives pids with inode numbers;
equal pid and inode is the same process, and only new ones are opened. What an exec may change (environment, command
line) is read again: every time while a process is young, seldom later.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from hangwatch.sources.discovery.launchers import is_python_program, name_launcher
from hangwatch.sources.discovery.pods import pod_variables
from hangwatch.sources.discovery.rank_environment import (
    POD_NAMESPACE,
    RUN_DIR_VARIABLE,
    RankClaim,
    claim_rank,
    parse_environ,
)
from hangwatch.sources.discovery.titles import IDLE_WORKER, Title, find_title, is_overwritten, parse_title
from hangwatch.sources.proc.files import (
    CLOCK_TICKS,
    Stat,
    inner_pid,
    is_zombie,
    node_name,
    read_link,
    read_stat,
    read_user,
    read_whole,
    shares_namespace,
    start_time_s,
    view_of,
)
from hangwatch.sources.proc.views import note_user

_YOUNG_S = 10.0
#: An engine's worker sets its title only after loading everything it needs.
_NAMED_WITHIN_S = 120.0
_SETTLED_PERIOD_S = 15.0
_UNSETTLED_PERIOD_S = 2.0
_ENVIRON_LIMIT_BYTES = 1 << 20
_COMMAND_LIMIT_BYTES = 1 << 17
_MAPS_LIMIT_BYTES = 16 << 20
#: How many ended Python processes are remembered, the latest ones.
_ENDED_KEPT = 64


class ProbedProcess(NamedTuple):
    """A process that was started with the probe's environment.

    ``folder``: its run directory, as the process itself sees it. ``view``: which file system it sees, as a name to
    compare. ``inner_pid``: its pid in its own namespace. ``uid``: its user.
    """

    pid: int
    inner_pid: int
    uid: int
    view: str
    folder: str


@dataclass
class KnownProcess:
    """One process as last read.

    ``environ``: None if unreadable; if a title has overwritten it, the last one read before. ``overwritten``: True if
    a title was written over its environment. ``title``: the process's title, parsed. ``user``: its user, None for one in a user
    namespace of its own, whose numbers say nothing here.
    """

    pid: int
    inode: int
    stat: Stat
    start_time: float
    arguments: tuple[str, ...] = ()
    environ: dict[str, str] | None = None
    title: Title | None = None
    overwritten: bool = False
    python: bool = False
    launcher: str | None = None
    claim: RankClaim | None = None
    user: int | None = None
    torch: bool = False
    #: None until placed in the tree. A process stays where it was first seen, even if its parents end.
    under_root: bool | None = None
    #: True if once seen as a descendant of a rank: it is never taken for the rank itself, even if it outlives that.
    context: bool = False
    #: The launcher and its command line, kept after the launcher is gone.
    origin: tuple[str, str] | None = None
    origin_pid: int | None = None
    probed: ProbedProcess | None = None
    #: When it last existed, in clock ticks since boot, like the kernel's start time of a process.
    seen_ticks: int = 0
    _read_s: float = field(default=-1e9)
    _torch_read_s: float = field(default=-1e9)

    @property
    def parent(self) -> int:
        """The parent's pid when the process was first seen."""
        return self.stat.parent

    def lives(self) -> bool:
        """True unless the process has ended. A zombie has, though it stays if the container's first process never reaps it."""
        stat = read_stat(self.pid)
        return stat is not None and not is_zombie(stat)

    def refresh(self, now_s: float) -> None:
        """Read the command line and environment again if they may have changed since."""
        age_s = time.time() - self.start_time
        young = age_s < _YOUNG_S
        named = self.title is not None and self.title.name != IDLE_WORKER
        unnamed = not named and (self.title is not None or (self.python and age_s < _NAMED_WITHIN_S))
        unsettled = self.environ is None or unnamed or (self.claim is not None and not self.python)
        period_s = 0.0 if young else _UNSETTLED_PERIOD_S if unsettled else _SETTLED_PERIOD_S + self.pid % 8
        if now_s - self._read_s < period_s:
            return
        self._read_s = now_s
        command = read_whole(f"/proc/{self.pid}/cmdline", _COMMAND_LIMIT_BYTES)
        if not command:  # a zombie or a kernel thread: keep what was known
            return
        said = find_title(command)
        self.title = parse_title(said)
        if not said or not self.arguments:
            self.arguments = tuple(part.decode(errors="replace") for part in command.rstrip(b"\0").split(b"\0"))
            self.launcher = name_launcher(self.arguments)
        program = read_link(f"/proc/{self.pid}/exe") or self.arguments[0]
        self.python = is_python_program(PurePosixPath(program).name)
        user = note_user(self.pid) if self.python else None
        self.user = user if shares_namespace(self.pid, "user") else None
        environ = read_whole(f"/proc/{self.pid}/environ", _ENVIRON_LIMIT_BYTES)
        if environ is None:
            return
        self.overwritten = self.python and is_overwritten(environ)
        if self.overwritten:
            self.environ = self.environ or {}
            return
        self.environ = parse_environ(environ)
        if "KUBERNETES_SERVICE_HOST" in self.environ:
            self.environ |= pod_variables(self.pid, self.environ.get(POD_NAMESPACE, ""))
        self.claim = claim_rank(self.environ, host=node_name())
        self.probed = self.find_probe(self.environ.get(RUN_DIR_VARIABLE, ""))

    def find_probe(self, folder: str) -> ProbedProcess | None:
        """Return this process as probed, with its beats in ``folder``; None if it is gone, or runs no Python."""
        uid = read_user(self.pid) if self.python and folder.startswith("/") else None
        return ProbedProcess(self.pid, inner_pid(self.pid), uid, view_of(self.pid), folder) if uid is not None else None

    def maps_torch(self, now_s: float) -> bool:
        """True if the process has loaded torch. False is reused for a while: reading a memory map costs a millisecond."""
        if not self.torch and now_s - self._torch_read_s >= _UNSETTLED_PERIOD_S:
            self._torch_read_s = now_s
            self.torch = b"/libtorch" in (read_whole(f"/proc/{self.pid}/maps", _MAPS_LIMIT_BYTES) or b"")
        return self.torch


class ProcessTable:
    """All processes of the node, or one process and its descendants."""

    def __init__(self) -> None:
        self._known: dict[int, KnownProcess] = {}
        self._ended: deque[KnownProcess] = deque(maxlen=_ENDED_KEPT)
        self._root: int | None = None

    def refresh(self, root: int | None, extra: frozenset[int]) -> dict[int, KnownProcess]:
        """Return the current processes by pid: all, or ``root`` and its descendants, and those of ``extra``.

        A descendant stays one after its parents have ended. Ancestors are read too, so that a launcher above ``root``
        is found.
        """
        now_s, now_ticks = time.monotonic(), int(time.clock_gettime(time.CLOCK_BOOTTIME) * CLOCK_TICKS)
        living: dict[int, KnownProcess] = {}
        for pid, inode in list_processes():
            known = self._known.get(pid)
            if known is None or known.inode != inode:
                stat = read_stat(pid)
                if stat is None:
                    continue
                known = KnownProcess(pid, inode, stat, start_time_s(stat))
            living[pid] = known
            known.seen_ticks = now_ticks
        self._ended += [k for pid, k in self._known.items() if k.under_root and k.python and living.get(pid) is not k]
        self._known = living
        if root != self._root:
            self._root = root
            for known in living.values():
                known.under_root = None
        for known in living.values():
            if known.under_root is None:
                known.under_root = root is None or known.pid == root or self._is_below(known, root)
            if known.under_root or known.pid in extra:
                known.under_root = True
                known.refresh(now_s)
        for known in list(living.values()):
            if known.under_root and known.claim is not None:
                for ancestor in self.ancestors(known):
                    ancestor.refresh(now_s)
        return {pid: known for pid, known in living.items() if known.under_root}

    def probed(self) -> list[ProbedProcess]:
        """Return the processes of the last reading that were started with the probe's environment.

        If a title has overwritten a process's environment, its nearest probed ancestor's counts.
        """
        found = []
        for known in self._known.values():
            if known.probed is None and known.overwritten and known.under_root:
                above = (known.find_probe(a.probed.folder) for a in self.ancestors(known) if a.probed is not None)
                known.probed = next(above, None)
            if known.under_root and known.probed is not None:
                found.append(known.probed)
        return found

    def ended(self) -> list[KnownProcess]:
        """Return the Python processes that have ended, as of the last reading: the latest that are gone, and zombies."""
        zombies = [k for k in self._known.values() if k.under_root and k.python and not k.lives()]
        return [*self._ended, *zombies]

    def _is_below(self, process: KnownProcess, root: int) -> bool:
        """True if ``root`` is an ancestor, or was one when an ancestor was first seen."""
        return any(ancestor.pid == root or ancestor.under_root for ancestor in self.ancestors(process))

    def ancestors(self, process: KnownProcess) -> Iterator[KnownProcess]:
        """Yield parent, grandparent and so on while they live. A parent younger than its child has a reused pid: the end."""
        child = process
        while (parent := self._known.get(child.parent)) is not None and parent.pid != child.pid:
            if parent.stat.start_ticks > child.stat.start_ticks:
                return
            yield parent
            child = parent


def list_processes() -> list[tuple[int, int]]:
    """Return each pid with its inode number in ``/proc``."""
    with os.scandir("/proc") as entries:
        return [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdigit()]
