"""Which processes of this node are ranks, and of which job.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. The beat of a probed
process tells its rank, else its environment does. Children inherit ``RANK``: a rank is therefore the topmost Python
process with that rank that is no launcher, and everything below it is its context.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.model.claims import JobOfWorld
from hangwatch.sources.discovery.found_jobs import (
    Candidate,
    FoundJob,
    add_guests,
    make_job,
    put_together,
    tell_users_apart,
)
from hangwatch.sources.discovery.launchers import HANGWATCH, read_script
from hangwatch.sources.discovery.process_table import KnownProcess, ProbedProcess, ProcessTable
from hangwatch.sources.discovery.rank_environment import RankClaim, claim_rank
from hangwatch.sources.discovery.roles import Roles, clean_role, read_role
from hangwatch.sources.discovery.spawned import find_behind, find_spawned
from hangwatch.sources.proc.files import node_name
from hangwatch.sources.redaction import redact_command, redact_text

_NO_BEATS: Mapping[int, Beat] = MappingProxyType({})
_NOT_AWAY: Mapping[int, JobOfWorld] = MappingProxyType({})
#: Stands for the claim of a process that has none.
_NO_CLAIM = RankClaim(rank=-1, by="env")
#: Launchers that number the ranks themselves, whatever RANK they have inherited.
_OWN_NUMBERS = frozenset({"mpirun", "srun"})
_SPAWN_PERIOD_S = 5.0
_PROBE_HINT = 'start the job with "hangwatch run -- ...", or with the environment of "hangwatch env"'


class Discovery(msgspec.Struct, frozen=True):
    """All jobs of this node, in order of id, and what could not be seen."""

    jobs: tuple[FoundJob, ...]
    gaps: tuple[Gap, ...]


class RankFinder:
    """Finds ranks, every second; remembers the processes it has seen.

    ``job``: the name of a job whose environment does not name it; then only one such job can run at a time.
    """

    def __init__(self, job: str | None = None) -> None:
        self._job = job
        self._table = ProcessTable()
        self._processes: Mapping[int, KnownProcess] = {}
        self._spawned: dict[tuple[int, int], int] = {}
        self._spawn_looked_s = -1e9
        self._roles = Roles()

    def find(
        self,
        root: int | None = None,
        beats: Mapping[int, Beat] = _NO_BEATS,
        away: Mapping[int, JobOfWorld] = _NOT_AWAY,
    ) -> Discovery:
        """Return the current jobs and ranks of the node, or of the process ``root`` and its descendants.

        ``beats`` by pid: a probed rank is found even if its environment names no rank (``mp.spawn``). ``away``, by
        pid: the other nodes' jobs that processes here belong to.
        """
        processes = self._processes = self._table.refresh(root, frozenset(beats))
        guests = [g for p in processes.values() if (g := self._guest(p, beats.get(p.pid), away.get(p.pid))) is not None]
        others = [process for process in processes.values() if process.pid not in {g.process.pid for g in guests}]
        candidates = [c for p in others if (c := self._candidate(p, beats.get(p.pid))) is not None]
        chosen = self._choose(tell_users_apart(candidates))
        spawned = [*self._find_spawned(processes, [*chosen, *guests]), *self._find_behind(processes, chosen)]
        jobs: dict[str, list[Candidate]] = {}
        for candidate in [*chosen, *spawned]:
            jobs.setdefault(candidate.job_id, []).append(candidate)
        # A zombie beside living ranks is a lost rank; a job of zombies alone is over.
        jobs = {job_id: members for job_id, members in jobs.items() if any(m.process.lives() for m in members)}
        if root is not None:
            jobs = put_together(jobs)
        add_guests(jobs, guests)
        found = tuple(make_job(job_id, members, self._role) for job_id, members in sorted(jobs.items()))
        return Discovery(found, (*_spawn_gaps(spawned), *self._unreadable(processes)))

    def processes(self) -> Mapping[int, KnownProcess]:
        """Return the processes of the last reading by pid: the node's, or ``root`` and its descendants."""
        return self._processes

    def ended(self) -> list[KnownProcess]:
        """Return the Python processes that have ended, as of the last reading."""
        return self._table.ended()

    def probed(self) -> list[ProbedProcess]:
        """Return the processes of the last reading that were started with the probe's environment."""
        return self._table.probed()

    def _candidate(self, process: KnownProcess, beat: Beat | None) -> Candidate | None:
        """Return the process as a possible rank; None for one that cannot be."""
        if beat is not None and (beat.rank is None or beat.start_ticks != process.stat.start_ticks):
            beat = None
        if not _may_be_rank(process, beat):
            return None
        launcher, command, launched_by = self._origin(process)
        if beat is None and _is_helper(process, launcher, launched_by):
            return None
        claim = _claim(process, launcher, launched_by)
        said = claim or _NO_CLAIM
        placed = launcher != "plain" or said.local_rank is not None
        firm = beat is not None or process.maps_torch(time.monotonic())
        rank = _rank(claim, beat)
        if rank is None or not (firm or (said.by == "env" and placed)):
            return None
        return Candidate(
            process=process,
            job_id=self._job_id(process, claim, beat, launched_by),
            rank=rank,
            world_size=(beat.world_size if beat else None) or said.world_size,
            local_rank=beat.local_rank if beat is not None and claim is None else said.local_rank,
            restart=said.restart,
            launcher=launcher if launcher != "plain" or said.by == "env" else said.by,
            command=command,
            initialized=beat is not None and beat.initialized,
            firm=firm,
            placed=placed,
            master=said.master,
            store=beat.store if beat is not None else "",
            local_world_size=said.local_world_size,
            script=self._script(process),
        )

    def _job_id(
        self, process: KnownProcess, claim: RankClaim | None, beat: Beat | None, launched_by: KnownProcess | None
    ) -> str:
        """Return the job that the process names; else the name for unnamed jobs; else one made of the pid that started it."""
        alone = claim is None and beat is not None and beat.world_size == 1
        named = claim.job_id if claim is not None else f"pid-{process.pid}" if alone else None
        return named or self._job or f"pid-{launched_by.pid if launched_by is not None else process.parent}"

    def _guest(self, process: KnownProcess, beat: Beat | None, away: JobOfWorld | None) -> Candidate | None:
        """Return the process as a member of a job that is named after another world; None if it is not one."""
        if beat is None or beat.number is None or beat.start_ticks != process.stat.start_ticks:
            return None
        launcher, command, _ = self._origin(process)
        return Candidate(
            process=process,
            job_id=away.id if away is not None and beat.host is None else f"pid-{beat.host or process.pid}",
            rank=beat.number,
            world_size=None,
            local_rank=beat.local_rank,
            restart=0,
            launcher=launcher,
            command=command,
            initialized=True,
            firm=True,
            placed=False,
            store=beat.store,
            host=beat.host,
            world=self._roles.name(self._role(process), beat.number),
            world_rank=(beat.rank or 0) if beat.initialized else None,
            away=away,
        )

    def _origin(self, process: KnownProcess) -> tuple[str, str, KnownProcess | None]:
        """Return the launcher's name, its command line, and the nearest launching process if it still lives."""
        nearest: KnownProcess | None = None
        top: KnownProcess | None = None
        for ancestor in self._table.ancestors(process):
            ancestor_launcher = ancestor.launcher
            if ancestor_launcher in {None, HANGWATCH}:
                continue
            if nearest is None:
                nearest = ancestor
            if ancestor_launcher == nearest.launcher:
                top = ancestor
        if nearest is not None and top is not None:
            if process.origin is None or process.origin_pid != top.pid:
                process.origin = (nearest.launcher or "plain", redact_command(top.arguments))
                process.origin_pid = top.pid
        elif process.origin is None:
            process.origin = self._plain_origin(process)
        return (*process.origin, nearest)

    def _plain_origin(self, process: KnownProcess) -> tuple[str, str]:
        """Return launcher and command line of a process without a launcher above.

        The command line is the parent's if Python started the process (``mp.spawn``), else its own.
        """
        parent = next(self._table.ancestors(process), None)
        titled = process.title is not None and len(process.arguments) == 1
        spawned = titled or any(argument == "--multiprocessing-fork" for argument in process.arguments)
        above = parent if parent is not None and parent.python and parent.launcher is None and spawned else process
        elastic = process.claim is not None and process.claim.elastic
        if elastic and parent is not None and parent.python and parent.arguments:
            return "torchrun", redact_command(parent.arguments)
        return ("torchrun" if elastic else "plain"), redact_command(above.arguments)

    def _role(self, process: KnownProcess) -> str:
        """Return the role of a process by its title, else by a command line: its parent's if multiprocessing started it."""
        if process.title is not None and process.title.role:
            return clean_role(process.title.role.replace("::", "-"))
        return read_role(self._program(process))

    def _script(self, process: KnownProcess) -> str:
        """Return the program that a process runs; empty if a title has taken the place of its command line."""
        arguments = self._program(process)
        titled = process.title is not None and len(arguments) == 1
        return "" if titled else redact_text(read_script(arguments))

    def _program(self, process: KnownProcess) -> tuple[str, ...]:
        """Return the command line that says what a process runs: its parent's if multiprocessing started it."""
        spawned = "--multiprocessing-fork" in process.arguments
        above = next(self._table.ancestors(process), None) if spawned else None
        return above.arguments if above is not None and above.arguments else process.arguments

    def _choose(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return one candidate per rank: the topmost of relatives, the likelier or newer of strangers."""
        by_pid = {candidate.process.pid: candidate for candidate in candidates}
        above: dict[int, list[Candidate]] = {}
        starters: set[int] = set()
        for candidate in candidates:
            ancestors = [by_pid[a.pid] for a in self._table.ancestors(candidate.process) if a.pid in by_pid]
            above[candidate.process.pid] = ancestors
            # A process that started ranks of its own is their launcher, whatever the pod around it says.
            starters.update(a.process.pid for a in ancestors if not a.initialized and _is_started_by(candidate, a))
        best: dict[tuple[str, int], Candidate] = {}
        for candidate in candidates:
            pid = candidate.process.pid
            if pid in starters:
                continue
            family = [
                ancestor
                for ancestor in above[pid]
                if ancestor.process.pid not in starters
                and (ancestor.job_id, ancestor.rank, ancestor.restart) == _key(candidate)
                and (ancestor.firm or not candidate.firm)
            ]
            if family and not candidate.initialized:
                candidate.process.context = any(ancestor.firm for ancestor in family)
                continue
            rival = best.get((candidate.job_id, candidate.rank))
            if rival is None or self._is_likelier(candidate, rival):
                best[candidate.job_id, candidate.rank] = candidate
        return list(best.values())

    def _is_likelier(self, candidate: Candidate, rival: Candidate) -> bool:
        """True if ``candidate`` is the rank rather than ``rival``. A wrapper gives way to what it runs."""
        if any(ancestor.pid == rival.process.pid for ancestor in self._table.ancestors(candidate.process)):
            return candidate.initialized or (candidate.firm and not rival.firm)
        return candidate.order > rival.order

    def _find_spawned(self, processes: Mapping[int, KnownProcess], chosen: Iterable[Candidate]) -> list[Candidate]:
        """Return ranks that no environment names, among processes that are unrelated to the ``chosen`` ones."""
        taken = {candidate.process.pid for candidate in chosen}
        now_s = time.monotonic()
        if now_s - self._spawn_looked_s >= _SPAWN_PERIOD_S or not self._spawned:
            self._spawn_looked_s = now_s
            free = [
                process
                for process in processes.values()
                if process.python
                and process.pid not in taken
                and not any(ancestor.pid in taken for ancestor in self._table.ancestors(process))
                and (parent := processes.get(process.parent)) is not None
                and parent.python
                and parent.launcher is None
            ]
            self._spawned = {
                (member.pid, member.inode): rank
                for members in find_spawned(free, now_s)
                for rank, member in enumerate(members)
            }
        found = []
        for (pid, inode), rank in self._spawned.items():
            process = processes.get(pid)
            if process is None or process.inode != inode or pid in taken:
                continue
            found.append(self._inferred(process, f"pid-{process.parent}", rank))
        return found

    def _find_behind(self, processes: Mapping[int, KnownProcess], chosen: Iterable[Candidate]) -> list[Candidate]:
        """Return ranks of an ``mp.spawn`` that have not come to the rendezvous where their siblings are."""
        families: dict[tuple[int, str], list[Candidate]] = {}
        for one in chosen:
            if one.launcher == "plain" and one.process.claim is None and one.process.parent in processes:
                families.setdefault((one.process.parent, one.job_id), []).append(one)
        found = []
        for (_, job_id), members in families.items():
            first = members[0]
            if first.world_size is None or len(members) >= first.world_size:
                continue
            ranks = {member.process.pid: member.rank for member in members}
            for process, rank in find_behind(ranks, first.world_size, processes):
                found.append(self._inferred(process, job_id, rank))
        return found

    def _inferred(self, process: KnownProcess, job_id: str, rank: int) -> Candidate:
        """Return a process as a rank that is known only by its place among its siblings."""
        launcher, command, _ = self._origin(process)
        return Candidate(
            process, job_id, rank, None, None, 0, launcher, command, False, True, False, script=self._script(process)
        )

    def _unreadable(self, processes: Mapping[int, KnownProcess]) -> tuple[Gap, ...]:
        """Return a gap for children of launchers whose environment is unreadable: they may be ranks."""
        hidden = [
            process.pid
            for process in processes.values()
            if process.arguments
            and process.environ is None
            and process.launcher is None
            and (parent := processes.get(process.parent)) is not None
            and parent.launcher not in {None, HANGWATCH}
        ]
        if not hidden:
            return ()
        pids = ", ".join(map(str, hidden[:8]))
        reason = (
            f"the environment of {len(hidden)} process{'es' * (len(hidden) != 1)} under a launcher is not "
            f"readable (pid {pids})"
        )
        return (Gap("discovery", reason, hint="run the agent as the job's user or as root"),)


def _may_be_rank(process: KnownProcess, beat: Beat | None) -> bool:
    """True for a Python process with a beat or a claim to a rank that is no launcher and was not started by a rank."""
    if process.pid == os.getpid() or process.launcher is not None:
        return False
    if process.context and not (beat is not None and beat.initialized):
        return False
    return beat is not None or (process.claim is not None and process.python)


def _inherited_rank(launched_by: KnownProcess | None) -> str | None:
    """Return the launcher's own RANK, which a pod gave it; None if it has none."""
    return (launched_by.environ or {}).get("RANK") if launched_by is not None else None


def _is_helper(process: KnownProcess, launcher: str, launched_by: KnownProcess | None) -> bool:
    """True if a process is a helper of the launcher: both have the RANK of their pod."""
    claim = process.claim
    if claim is None or launcher in _OWN_NUMBERS or claim.by != "env" or claim.local_rank is not None:
        return False
    return _inherited_rank(launched_by) == str(claim.rank)


def _claim(process: KnownProcess, launcher: str, launched_by: KnownProcess | None) -> RankClaim | None:
    """Return the process's claim to a rank; if its RANK is its pod's, by the launcher's own number."""
    inherited = _inherited_rank(launched_by)
    if process.claim is None or inherited is None or launcher not in _OWN_NUMBERS:
        return process.claim
    return claim_rank(process.environ or {}, inherited, host=node_name())


def _rank(claim: RankClaim | None, beat: Beat | None) -> int | None:
    """Return the rank: the beat's if there is a process group or no claim, else the claim's."""
    if beat is not None and (beat.initialized or claim is None):
        return beat.rank
    return claim.rank if claim is not None else None


def _key(candidate: Candidate) -> tuple[str, int, int]:
    """Return the values that a rank and its relatives share."""
    return (candidate.job_id, candidate.rank, candidate.restart)


def _is_started_by(candidate: Candidate, ancestor: Candidate) -> bool:
    """True if ``ancestor`` started ``candidate`` as a rank of its own; False for a child that inherited its rank."""
    if candidate.initialized and candidate.process.pid != ancestor.process.pid:
        return (candidate.job_id, candidate.rank) != (ancestor.job_id, ancestor.rank) or not ancestor.firm
    return candidate.local_rank is not None and ancestor.local_rank is None and _key(candidate) != _key(ancestor)


def _are_titled(spawned: Iterable[Candidate]) -> bool:
    """True if all their titles number them."""
    titles = [candidate.process.title for candidate in spawned]
    return all(title is not None and title.rank_hint is not None for title in titles)


def _spawn_gaps(spawned: Sequence[Candidate]) -> tuple[Gap, ...]:
    """Return a gap that says which ranks were inferred."""
    pids = ", ".join(str(candidate.process.pid) for candidate in spawned)
    if not pids:
        return ()
    order = "the order of their titles" if _are_titled(spawned) else "the order of their start"
    reason = f"no environment names the ranks of processes {pids}; numbered in {order}"
    return (Gap("discovery", reason, hint=_PROBE_HINT),)
