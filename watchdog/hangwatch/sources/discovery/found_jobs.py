"""Turns the processes that were found to be ranks into jobs. May import what ``ranks.py`` may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.claims import JobOfWorld
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.discovery.rank_environment import POD_NAME, POD_NAMESPACE, read_job_name, read_user
from hangwatch.sources.proc.files import node_name


class FoundJob(msgspec.Struct, frozen=True):
    """A job with its ranks on this node, in order of rank.

    ``master``: where the ranks meet (``HOST:PORT``), empty if not known. ``spans_nodes``: True if the launcher
    started fewer ranks on this node than the job has; False also if not known. ``away``: set if the job is another
    node's, and the processes here share a group with it.
    """

    job: Job
    ranks: tuple[RankIdentity, ...]
    master: str = ""
    spans_nodes: bool = False
    away: JobOfWorld | None = None


class Candidate(msgspec.Struct, frozen=True):
    """A process that may be a rank, with everything that decides between rival claims to the rank.

    ``master``: the meeting place that the launcher gave it; ``store``: where its world really met. ``script``: its
    program. The following are for a process that belongs to the job through a shared group only. ``host``: a process
    of the job's own world. ``world`` and ``world_rank``: the process's own world and its rank there. ``away``: the
    job, if it is another node's.
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
    script: str = ""

    @property
    def order(self) -> tuple[int, bool, bool, bool, float, int]:
        """The sort key: of unrelated processes that claim one rank, the one with the greatest key is the rank."""
        start = self.process.start_time
        return (self.restart, self.initialized, self.placed, self.firm, start, self.process.pid)


def tell_users_apart(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates; those that name a job of another user are a job of their own.

    Any user may start a process that names it. The name is the oldest process's.
    """
    users: dict[str, int | None] = {}
    for one in sorted(candidates, key=lambda one: (one.process.start_time, one.process.pid)):
        users.setdefault(one.job_id, one.process.user)

    def name(one: Candidate) -> str:
        user = one.process.user
        return one.job_id if user == users[one.job_id] else f"{one.job_id}@{'container' if user is None else user}"

    return [msgspec.structs.replace(one, job_id=name(one)) for one in candidates]


def put_together(jobs: dict[str, list[Candidate]]) -> dict[str, list[Candidate]]:
    """Return the jobs with parts of one job merged, though their ranks have different places to meet.

    Parts of one job have one parent process and make up one world. Otherwise a leftover MASTER_PORT would make one
    rank a job of its own.
    """
    found: dict[str, list[Candidate]] = {}
    for job_id, members in sorted(jobs.items(), key=lambda item: (-len(item[1]), item[0])):
        whole = next((name for name, others in found.items() if _are_parts(others, members)), job_id)
        found.setdefault(whole, []).extend(members)
    return found


def add_guests(jobs: dict[str, list[Candidate]], guests: Iterable[Candidate]) -> None:
    """Add each process of another world to the job that it shares a group with, if that job is visible."""
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
    """Return the pid of torchrun's agent; None if torchrun did not start the process.

    The agent may run under another launcher's name; if a program embeds it, it is the parent of the ranks.
    """
    claim = process.claim
    return (process.origin_pid or process.parent) if claim is not None and claim.elastic else None


def _port(master: str) -> int | None:
    port = master.rpartition(":")[2]
    return int(port) if port.isdigit() else None


def make_job(job_id: str, members: list[Candidate], role: Callable[[KnownProcess], str]) -> FoundJob:
    """Return the job as a value; ``role`` returns the role of a process.

    The newest member tells the world size; older ones with a higher rank are left over from a larger world.
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
    environ = newest.process.environ or {}
    job = Job(
        id=job_id,
        world_size=world_size,
        nodes=(node,),
        launcher=newest.launcher,
        command=newest.command,
        role=role(newest.process),
        name=read_job_name(environ),
        script=newest.script,
        user=read_user(environ),
        slurm_job=environ.get("SLURM_JOB_ID", ""),
        namespace=environ.get(POD_NAMESPACE, ""),
        pod=environ.get(POD_NAME, ""),
    )
    local_size = newest.local_world_size
    return FoundJob(job, ranks, newest.master, local_size is not None and (world_size or 0) > local_size)


def _make_away(members: list[Candidate]) -> FoundJob:
    """Return the local part of another node's job: processes of other worlds than the job's own."""
    away = next(member.away for member in members if member.away is not None)
    job = Job(
        id=away.id,
        world_size=away.world_size,
        nodes=(node_name(),),
        launcher=away.launcher,
        command=away.command,
        role=away.role,
        name=away.name,
        script=away.script,
    )
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
