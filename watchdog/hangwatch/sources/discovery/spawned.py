"""Ranks that no environment names: processes of one ``torch.multiprocessing.spawn`` without the probe.

May import hangwatch.sources' own parts and the standard library. Sockets tell a spawned rank from a DataLoader
worker: all ranks of a job have their own connection to one store, and the first rank listens there. Ranks are in the
order of the numbers in their titles (``VLLM::Worker_TP1``), else in the order of their start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.discovery.titles import in_order_of_titles
from hangwatch.sources.proc.sockets import TcpSocket, read_socket_inodes, read_tcp_sockets


def find_spawned(processes: Iterable[KnownProcess], now_s: float) -> list[list[KnownProcess]]:
    """Return sets of siblings that are certainly the ranks of one job, each in order of rank."""
    siblings: dict[tuple[int, tuple[str, ...]], list[KnownProcess]] = {}
    for process in processes:
        if process.python and process.claim is None and process.launcher is None and not process.context:
            siblings.setdefault((process.parent, _shape(process)), []).append(process)
    found = []
    for members in siblings.values():
        if len(members) < 2 or not all(member.maps_torch(now_s) for member in members):
            continue
        ordered = _as_started(members)
        titled = in_order_of_titles([member.title for member in ordered])
        ordered = ordered if titled is None else [ordered[at] for at in titled]
        if _meet_at_first(ordered, titled=titled is not None):
            found.append(ordered)
    return found


def find_behind(
    ranks: Mapping[int, int], world_size: int, processes: Mapping[int, KnownProcess]
) -> list[tuple[KnownProcess, int]]:
    """Return siblings of the known ranks that have not reached the rendezvous, each with its rank.

    ``ranks``: known ranks by pid. Only if there are as many siblings with the same work as the world has ranks, and
    all known ranks are in the order of their start.
    """
    first = processes[next(iter(ranks))]
    ordered = _as_started(p for p in processes.values() if p.parent == first.parent and _shape(p) == _shape(first))
    if len(ordered) != world_size or any(ranks.get(one.pid, at) != at for at, one in enumerate(ordered)):
        return []
    return [(one, at) for at, one in enumerate(ordered) if one.pid not in ranks]


def _as_started(processes: Iterable[KnownProcess]) -> list[KnownProcess]:
    return sorted(processes, key=lambda process: (process.stat.start_ticks, process.pid))


def _shape(process: KnownProcess) -> tuple[str, ...]:
    """Return what siblings with the same work have in common: titles without numbers, else command lines."""
    if process.title is not None:
        return (process.title.role,)
    if any("multiprocessing.spawn import spawn_main" in argument for argument in process.arguments):
        return ("spawn_main",)
    return process.arguments


def _meet_at_first(ordered: Sequence[KnownProcess], *, titled: bool) -> bool:
    """True if each process has its own connection to one port, and the first process listens there.

    ``mp.spawn`` starts rank 0 first, and rank 0 has the store: if the listener is another one, the order proves
    nothing. Forked processes inherit connections: without numbered titles, processes that share one are workers, not
    ranks.
    """
    table: dict[int, TcpSocket] = {entry.inode: entry for entry in read_tcp_sockets(ordered[0].pid)}
    sockets = [read_socket_inodes(member.pid) for member in ordered]
    inherited = set().union(*(sockets[i] & sockets[j] for i in range(len(sockets)) for j in range(i)))
    if inherited and not titled:
        return False
    sockets = [inodes - inherited for inodes in sockets]
    listening = {table[inode].local_port for inode in sockets[0] if inode in table and table[inode].listening}
    common: set[int] | None = None
    for inodes in sockets:
        remote = {table[inode].remote_port for inode in inodes if inode in table and table[inode].established}
        common = remote if common is None else common & remote
    return bool(listening & (common or set()))
