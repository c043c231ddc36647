"""From processes that were found to be ranks to the job they are. May import what ``ranks.py`` may."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.claims import JobOfWorld
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.proc.files import node_name


class FoundJob(msgspec.Struct, frozen=True):
    """A job with its ranks on this node, in order of rank. ``master``: where they meet (``HOST:PORT``), empty where not known.

    ``spans_nodes``: its launcher has started fewer ranks on this node than the job has; False where it does not say.
    ``away``: the job is another node's, and processes here are in it by a group that they share.
    """

    job: Job
    ranks: tuple[RankIdentity, ...]
    master: str = ""
    spans_nodes: bool = False
    away: JobOfWorld | None = None


class Candidate(msgspec.Struct, frozen=True):
    """A process that may be a rank, with everything that decides between it and another claimant.

    ``master`` is what its launcher has it meet the others at, ``store`` where its world has met.
    ``host``, ``world`` and ``world_rank`` are of one that is in the job by a group it shares: a process of the job's own world,
    and the name of its own one, with its rank there. ``away``: that job, where it is another node's.
    """

    process: KnownProcess
    job_id: str
    rank: int
    world_size: int | None
    local_rank: int | None
    restart: int
    launcher: str
    command: str
    initialized: bool
    firm: bool
    placed: bool
    master: str = ""
    store: str = ""
    host: int | None = None
    world: str = ""
    world_rank: int | None = None
    local_world_size: int | None = None
    away: JobOfWorld | None = None

    @property
    def order(self) -> tuple[int, bool, bool, bool, float, int]:
        """The greatest of several unrelated claimants of one rank is the rank."""
        start = self.process.start_time
        return (self.restart, self.initialized, self.placed, self.firm, start, self.process.pid)


def put_together(jobs: dict[str, list[Candidate]]) -> dict[str, list[Candidate]]:
    """Parts of one job with different places to meet: one process started them all, and they make up one world.

    A leftover port on one rank makes it a job of its own by name, and nothing else.
    """
    found: dict[str, list[Candidate]] = {}
    for job_id, members in sorted(jobs.items(), key=lambda item: (-len(item[1]), item[0])):
        whole = next((name for name, others in found.items() if _are_parts(others, members)), job_id)
        found.setdefault(whole, []).extend(members)
    return found


def add_guests(jobs: dict[str, list[Candidate]], guests: Iterable[Candidate]) -> None:
    """Put processes of other worlds to the jobs that they share a group with; nothing is done for one whose job is not seen."""
    homes = {member.process.pid: job_id for job_id, members in jobs.items() for member in members}
    for guest in sorted(guests, key=lambda guest: guest.host is not None):
        job_id = guest.job_id if guest.host is None else homes.get(guest.host)
        if job_id is not None:
            jobs.setdefault(job_id, []).append(guest)
            homes[guest.process.pid] = job_id


def _are_parts(ours: list[Candidate], theirs: list[Candidate]) -> bool:
    both = [*ours, *theirs]
    worlds, ranks = {c.world_size for c in both}, {c.rank for c in both}
    parents = {c.process.parent for c in both}
    size = next(iter(worlds))
    alike = len(worlds) == len(parents) == 1 and all(c.master for c in both)
    return alike and size is not None and len(ranks) == len(both) <= size


def _supervisor(process: KnownProcess) -> int | None:
    """The process of torchrun's agent, under whatever launcher's name it runs: a program's own one is its ranks' parent."""
    claim = process.claim
    return (process.origin_pid or process.parent) if claim is not None and claim.elastic else None


def _port(master: str) -> int | None:
    port = master.rpartition(":")[2]
    return int(port) if port.isdigit() else None


def make_job(job_id: str, members: list[Candidate], role: Callable[[KnownProcess], str]) -> FoundJob:
    """The job as a value; ``role`` tells that of a process.

    The newest members know its size; older ones beyond it are leftovers of a larger world.
    """
    node = node_name()
    own = [member for member in members if member.host is None and member.away is None]
    if not own:
        return _make_away(members)
    newest = max(own, key=lambda member: member.order)
    world_size = newest.world_size
    if world_size is None and any(not member.placed and member.launcher == "plain" for member in members):
        world_size = max((m.world_size for m in members if m.world_size is not None), default=None)
    kept = [m for m in members if world_size is None or m.rank < world_size or m.restart == newest.restart or m.world]
    ranks = _identify(kept)
    job = Job(job_id, world_size, (node,), newest.launcher, newest.command, role(newest.process))
    local_size = newest.local_world_size
    return FoundJob(job, ranks, newest.master, local_size is not None and (world_size or 0) > local_size)


def _make_away(members: list[Candidate]) -> FoundJob:
    """The part of another node's job that is here: processes of other worlds than its own."""
    away = next(member.away for member in members if member.away is not None)
    job = Job(away.id, away.world_size, (node_name(),), away.launcher, away.command, away.role)
    return FoundJob(job, _identify(members), away.meeting, True, away)


def _identify(members: Iterable[Candidate]) -> tuple[RankIdentity, ...]:
    return tuple(
        RankIdentity(
            rank=m.rank,
            pid=m.process.pid,
            start_time=m.process.start_time,
            node=node_name(),
            local_rank=m.local_rank,
            restart=m.restart,
            max_restarts=m.process.claim.max_restarts if m.process.claim is not None else 0,
            meeting_port=_port(m.master) or _port(m.store),
            supervisor=_supervisor(m.process),
            world=m.world,
            world_rank=m.world_rank,
            title=m.process.title.name if m.process.title is not None else "",
        )
        for m in sorted(members, key=lambda member: member.rank)
    )
