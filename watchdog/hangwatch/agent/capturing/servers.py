"""The processes beside a job that its ranks await an answer from: a reward model's server, a data service, a saver.

May import the model, the sources and ``callers``. Such a process is in no group and no world; a connection of which both ends
are on this node leads to it. Above the ranks, and below them, others look: ``callers`` and ``children``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from hangwatch.agent.capturing.callers import read_arguments, runs_python
from hangwatch.model.capture import RankIdentity
from hangwatch.model.numbers import guest_number
from hangwatch.sources.discovery.launchers import name_launcher
from hangwatch.sources.discovery.roles import read_role
from hangwatch.sources.proc.blocking import read_syscall
from hangwatch.sources.proc.files import node_name, read_stat, start_time_s
from hangwatch.sources.proc.other_ends import find_other_ends
from hangwatch.sources.proc.samples import find_descendants

#: A server may itself ask another one, and so on.
_LONGEST_CHAIN = 3
_MOST_SERVERS = 8
_MOST_ANCESTORS = 64


def find_servers(ranks: Sequence[RankIdentity]) -> tuple[dict[int, int], tuple[RankIdentity, ...]]:
    """Whom each process awaits an answer from, both by pid, and the identities of those that are no ranks.

    Of Python programs only: whether another one works on the answer cannot be seen. A few system calls a rank; the node's
    descriptors are read where one of them reads from a connection.
    """
    known = {rank.pid for rank in ranks}
    awaited: dict[int, int] = {}
    found: dict[int, RankIdentity] = {}
    asking: Iterable[int] = known
    for _ in range(_LONGEST_CHAIN):
        ends = find_other_ends({pid: read_syscall(pid) for pid in asking})
        fresh = {pid: other for pid, other in ends.items() if _same_user(pid, other) and not _are_relatives(pid, other)}
        made = {other: _identify(other) for other in fresh.values() if other not in known | found.keys()}
        new = {pid: one for pid, one in made.items() if one is not None}
        found |= dict(list(new.items())[: _MOST_SERVERS - len(found)])
        awaited |= {pid: other for pid, other in fresh.items() if other in known | found.keys()}
        asking = new.keys() & found.keys()
        if not asking:
            break
    return awaited, tuple(found.values())


def _same_user(pid: int, other: int) -> bool:
    """Whether both are one user's: an agent of the node may read all stacks, and shows a job's owner no others."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid == Path(f"/proc/{other}").stat().st_uid
    except OSError:
        return False


def _are_relatives(pid: int, other: int) -> bool:
    """Whether one process is the other, or below it: what a child delivers, or a parent calls for, is another matter."""
    return other == pid or other in _ancestors(pid) or other in find_descendants(pid)


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    stat = read_stat(pid)
    while stat is not None and stat.parent > 1 and len(found) < _MOST_ANCESTORS:
        found.add(stat.parent)
        stat = read_stat(stat.parent)
    return found


def _identify(pid: int) -> RankIdentity | None:
    """The process as one of no world; None for us, for a launcher, and for what is no Python program."""
    stat = read_stat(pid)
    if stat is None or pid == os.getpid() or not runs_python(pid):
        return None
    arguments = read_arguments(pid)
    if name_launcher(arguments) is not None:
        return None
    node, start_s = node_name(), start_time_s(stat)
    number = guest_number(f"process {pid} {start_s} {node}", 0)
    return RankIdentity(number, pid, start_s, node, world=f"{read_role(arguments)}[{pid}]")
