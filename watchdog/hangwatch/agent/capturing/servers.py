"""The processes beside a job that its ranks wait for: a reward model's server, a data service, a driver, users of a queue.

May import the model, the sources and ``relatives``. Such a process is in no group and no world; a connection with
both ends on this node leads to it. Children that are no servers are the matter of ``relatives``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from hangwatch.agent.capturing.relatives import runs_python
from hangwatch.model.capture import RankIdentity
from hangwatch.model.processes import StoreSample
from hangwatch.sources.connections.other_ends import Connection, Ends, Thread, find_connected, find_ends
from hangwatch.sources.connections.ray_tasks import RayTask, find_running, find_tasks
from hangwatch.sources.discovery.launchers import name_launcher
from hangwatch.sources.discovery.roles import identify_beside
from hangwatch.sources.proc.files import inner_thread, read_arguments, read_stat, read_user, start_time_s
from hangwatch.sources.proc.samples import find_descendants
from hangwatch.sources.proc.threads import read_calls

#: A server may itself ask another one, and so on.
_LONGEST_CHAIN = 3
_MOST_SERVERS = 8
#: If more processes share a queue, nothing is concluded from it.
_MOST_SHARING = 6


class Beyond(NamedTuple):
    """What a thread waits for beyond its process: other processes, a store, or an address that is not on this node.

    ``own_end``: this side's address of the connection to that address.
    """

    servers: tuple[int, ...] = ()
    store: StoreSample | None = None
    elsewhere: str = ""
    own_end: str = ""


def find_asked(
    connections: Collection[Connection], ranks: Sequence[RankIdentity]
) -> dict[RankIdentity, tuple[Connection, ...]]:
    """Return which processes of this node have the other end of connections of other nodes' processes.

    ``ranks`` and other processes of their user are considered. A connection is left out if several have its end: then
    it is not known which one is asked.
    """
    by_pid = {rank.pid: rank for rank in ranks}
    found: dict[RankIdentity, tuple[Connection, ...]] = {}
    for there, holders in sorted(find_connected(connections).items()):
        if len(holders) != 1:
            continue
        (pid,) = holders
        own = any(_same_user(rank.pid, pid) for rank in ranks)
        one = by_pid.get(pid) or (_identify(pid) if own else None)
        if one is not None:
            found[one] = (*found.get(one, ()), there)
    return found


def find_servers(
    ranks: Sequence[RankIdentity], others: Sequence[RankIdentity] = ()
) -> tuple[dict[Thread, Beyond], tuple[RankIdentity, ...]]:
    """Return what each thread waits for beyond its process, and the identities of those processes that are no ranks.

    Threads are numbered as in the PID namespace of their process. ``others``: ranks of the job that are not searched.
    Only Python processes are returned: whether another one works on the answer cannot be seen. It takes a few system
    calls per thread; the node's descriptors are read if a thread is blocked on a connection.
    """
    asking: Iterable[int] = {rank.pid for rank in ranks}
    known = {*asking, *(rank.pid for rank in others)}
    found: dict[int, RankIdentity] = {}
    beyond: dict[Thread, Beyond] = {}
    for _ in range(_LONGEST_CHAIN):
        ends = find_ends({(pid, thread): call for pid in asking for thread, call in read_calls(pid).items()})
        wanted = {thread: _whom(thread[0], one) for thread, one in ends.items()}
        new: dict[int, RankIdentity | None] = {}
        for pid in sorted({pid for pids in wanted.values() for pid in pids} - known - found.keys()):
            new[pid] = _identify(pid)
        fresh = {pid: one for pid, one in new.items() if one is not None}
        fresh = dict(list(fresh.items())[: _MOST_SERVERS - len(found)])
        found |= fresh
        for thread, one in ends.items():
            beyond[thread] = _beyond(one, wanted[thread], known | found.keys())
        asking = fresh.keys()
        if not asking:
            break
    named = {(pid, inner_thread(pid, thread)): one for (pid, thread), one in beyond.items() if one != Beyond()}
    return named, tuple(found.values())


async def find_task_workers(
    callers: Mapping[RankIdentity, frozenset[str]], known: Collection[int]
) -> tuple[dict[int, tuple[RayTask, ...]], tuple[RankIdentity, ...]]:
    """Return the unfinished Ray tasks of processes in ``ray.get`` or ``ray.wait``, by pid, and who runs them.

    ``callers``: with the names of what they may have called. If no dashboard knows a caller (by default, Ray answers only
    holders of a token), its workers are those with such a name in their title. ``known``: pids to leave out.
    """
    tasks = await find_tasks({one.pid for one in callers})
    called = {name for one, names in callers.items() if one.pid not in tasks for name in names}
    running = [t.pid for found in tasks.values() for t in found] + await asyncio.to_thread(find_running, called)
    new = dict.fromkeys(pid for pid in running if pid is not None and pid not in known)
    workers = [
        one for pid in new if any(_same_user(c.pid, pid) for c in callers) and (one := _identify(pid)) is not None
    ]
    return tasks, tuple(workers[:_MOST_SERVERS])


def _beyond(ends: Ends, wanted: frozenset[int], seen: Collection[int]) -> Beyond:
    """Return what is kept of the ends.

    If several processes may be awaited, all must be captured; otherwise it stays open who is.
    """
    store = None
    if ends.store is not None:
        clients = tuple(sorted(ends.store.clients))
        store = StoreSample(ends.store.address, clients, ends.store.unseen)
        held = ends.store.host in seen and _is_stopped(ends.store.host)
        return Beyond((ends.store.host,) if held else (), store)
    here = tuple(sorted(pid for pid in wanted if pid in seen))
    return Beyond(here if len(wanted) <= _MOST_SHARING else (), None, ends.elsewhere, ends.own_end)


def _whom(pid: int, ends: Ends) -> frozenset[int]:
    """Return the processes that a process may wait for at these ends.

    They are of its own user, and no children except servers that it started. At a store they are the processes that
    may set the key.
    """
    having = ends.holders if ends.store is None else ends.store.clients | {ends.store.host}
    if not having or len(having) > (_MOST_SHARING if ends.store is None else 4 * _MOST_SERVERS):
        return frozenset()
    children = frozenset(find_descendants(pid)) if ends.store is None else frozenset()
    return frozenset(
        other
        for other in having - {pid}
        if _same_user(pid, other) and (other not in children or other in ends.accepted)
    )


def _is_stopped(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state in {"T", "t"}


def _same_user(pid: int, other: int) -> bool:
    """True if both processes are of one user.

    A node's agent may read all stacks, but shows a job's owner only those of the same user.
    """
    user = read_user(pid)
    return user is not None and user == read_user(other)


def _identify(pid: int) -> RankIdentity | None:
    """Return a process as one of no world; None for the agent, a launcher, or a program that is not Python."""
    stat = read_stat(pid)
    if stat is None or pid == os.getpid() or not runs_python(pid):
        return None
    arguments = read_arguments(pid)
    if name_launcher(arguments) is not None:
        return None
    return identify_beside(pid, start_time_s(stat), arguments)
