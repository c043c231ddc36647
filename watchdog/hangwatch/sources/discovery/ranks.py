"""Which processes of this node are ranks, and of which job.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. The environment of a process
decides; its beat, where the rank is probed, knows better. Children inherit ``RANK``, so a rank is the topmost Python
process of its rank that is no launcher, and everything below it is its context.
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
from hangwatch.sources.discovery.found_jobs import Candidate, FoundJob, add_guests, make_job, put_together
from hangwatch.sources.discovery.launchers import HANGWATCH
from hangwatch.sources.discovery.process_table import KnownProcess, ProbedProcess, ProcessTable
from hangwatch.sources.discovery.rank_environment import claim_rank
from hangwatch.sources.discovery.roles import Roles, clean_role, read_role
from hangwatch.sources.discovery.spawned import find_behind, find_spawned
from hangwatch.sources.proc.files import node_name
from hangwatch.sources.redaction import redact_command

_NO_BEATS: Mapping[int, Beat] = MappingProxyType({})
_NOT_AWAY: Mapping[int, JobOfWorld] = MappingProxyType({})
_SPAWN_PERIOD_S = 5.0
_PROBE_HINT = 'start the job with "hangwatch run -- ...", or with the environment of "hangwatch env"'


class Discovery(msgspec.Struct, frozen=True):
    """All jobs of this node, in order of id, and what could not be seen."""

    jobs: tuple[FoundJob, ...]
    gaps: tuple[Gap, ...]


class RankFinder:
    """Finds ranks again and again, every second, remembering the processes it has seen.

    ``job``: the name of jobs that their environment does not name; then there can be one of these at a time.
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
        """The jobs and ranks of the node now, or of the process ``root`` and its descendants.

        ``beats`` by pid: a probed rank is found also where its environment says nothing (``mp.spawn``). ``away``, by pid: the
        jobs of other nodes that processes here are in.
        """
        processes = self._processes = self._table.refresh(root, frozenset(beats))
        guests = [g for p in processes.values() if (g := self._guest(p, beats.get(p.pid), away.get(p.pid))) is not None]
        others = [process for process in processes.values() if process.pid not in {g.process.pid for g in guests}]
        candidates = [c for p in others if (c := self._candidate(p, beats.get(p.pid))) is not None]
        chosen = self._choose(candidates)
        spawned = [*self._find_spawned(processes, [*chosen, *guests]), *self._find_behind(processes, chosen)]
        jobs: dict[str, list[Candidate]] = {}
        for candidate in [*chosen, *spawned]:
            jobs.setdefault(candidate.job_id, []).append(candidate)
        # A zombie among the living is a rank that was lost; a job of zombies alone is over.
        jobs = {job_id: members for job_id, members in jobs.items() if any(m.process.lives() for m in members)}
        if root is not None:
            jobs = put_together(jobs)
        add_guests(jobs, guests)
        found = tuple(make_job(job_id, members, self._role) for job_id, members in sorted(jobs.items()))
        return Discovery(found, (*_spawn_gaps(spawned), *self._unreadable(processes)))

    def processes(self) -> Mapping[int, KnownProcess]:
        """The processes at the last reading, by pid: of the node, or of the root and its descendants."""
        return self._processes

    def ended(self) -> list[KnownProcess]:
        """The Python programs that have ended, as of the last reading."""
        return self._table.ended()

    def probed(self) -> list[ProbedProcess]:
        """The processes at the last reading that were started with the probe's environment."""
        return self._table.probed()

    def _candidate(self, process: KnownProcess, beat: Beat | None) -> Candidate | None:
        """The process as a possible rank; None for one that cannot be."""
        if beat is not None and (beat.rank is None or beat.start_ticks != process.stat.start_ticks):
            beat = None
        if process.pid == os.getpid() or process.launcher is not None:
            return None
        if process.context and not (beat is not None and beat.initialized):
            return None
        if beat is None and (process.claim is None or not process.python):
            return None
        launcher, command, launched_by = self._origin(process)
        claim = process.claim
        if claim is not None and launched_by is not None:
            inherited = (launched_by.environ or {}).get("RANK")
            if launcher in {"mpirun", "srun"} and inherited is not None:
                claim = claim_rank(process.environ or {}, inherited, host=node_name())
            elif claim.by == "env" and claim.local_rank is None and inherited == str(claim.rank) and beat is None:
                return None  # a helper of the launcher, with the RANK of the pod around both
        placed = launcher != "plain" or (claim is not None and claim.local_rank is not None)
        firm = beat is not None or process.maps_torch(time.monotonic())
        if not firm and (claim is None or claim.by != "env" or not placed):
            return None
        initialized = beat is not None and beat.initialized
        rank = claim.rank if claim else None
        if beat is not None and (initialized or rank is None):
            rank = beat.rank
        if rank is None:
            return None
        alone = claim is None and beat is not None and beat.world_size == 1
        named = claim.job_id if claim else f"pid-{process.pid}" if alone else None
        return Candidate(
            process=process,
            job_id=named or self._job or f"pid-{launched_by.pid if launched_by else process.parent}",
            rank=rank,
            world_size=(beat.world_size if beat else None) or (claim.world_size if claim else None),
            local_rank=claim.local_rank if claim else beat.local_rank if beat else None,
            restart=claim.restart if claim else 0,
            launcher=launcher if launcher != "plain" or claim is None or claim.by == "env" else claim.by,
            command=command,
            initialized=initialized,
            firm=firm,
            placed=placed,
            master=claim.master if claim is not None else "",
            store=beat.store if beat is not None else "",
            local_world_size=claim.local_world_size if claim is not None else None,
        )

    def _guest(self, process: KnownProcess, beat: Beat | None, away: JobOfWorld | None) -> Candidate | None:
        """The process as a member of a job whose own world is not its own; None of any other."""
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
        """The launcher, its command line, and the nearest launching process if it lives still."""
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
        """Where no launcher is above: the parent's command where it is Python (``mp.spawn``), else its own."""
        parent = next(self._table.ancestors(process), None)
        titled = process.title is not None and len(process.arguments) == 1
        spawned = titled or any(argument == "--multiprocessing-fork" for argument in process.arguments)
        above = parent if parent is not None and parent.python and parent.launcher is None and spawned else process
        elastic = process.claim is not None and process.claim.elastic
        if elastic and parent is not None and parent.python and parent.arguments:
            return "torchrun", redact_command(parent.arguments)
        return ("torchrun" if elastic else "plain"), redact_command(above.arguments)

    def _role(self, process: KnownProcess) -> str:
        """What a process is, by its title or a command line: its parent's, where multiprocessing started it."""
        if process.title is not None and process.title.role:
            return clean_role(process.title.role.replace("::", "-"))
        spawned = "--multiprocessing-fork" in process.arguments
        above = next(self._table.ancestors(process), None) if spawned else None
        return read_role(above.arguments if above is not None and above.arguments else process.arguments)

    def _choose(self, candidates: list[Candidate]) -> list[Candidate]:
        """One candidate a rank: the topmost of a family, the likelier or newer of strangers."""
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
        """Whether a candidate is the rank rather than a rival. A wrapper gives way to what it runs."""
        if any(ancestor.pid == rival.process.pid for ancestor in self._table.ancestors(candidate.process)):
            return candidate.initialized or (candidate.firm and not rival.firm)
        return candidate.order > rival.order

    def _find_spawned(self, processes: Mapping[int, KnownProcess], chosen: Iterable[Candidate]) -> list[Candidate]:
        """Ranks that are not named anywhere, among processes that have nothing to do with those already found."""
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
        """Ranks of one ``mp.spawn`` that have not begun to meet the others, who do."""
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
        """A rank that nothing names but its place among its siblings."""
        launcher, command, _ = self._origin(process)
        return Candidate(process, job_id, rank, None, None, 0, launcher, command, False, True, False)

    def _unreadable(self, processes: Mapping[int, KnownProcess]) -> tuple[Gap, ...]:
        """Children of a launcher whose environment may not be read: ranks that are not seen."""
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
        reason = f"the environment of {len(hidden)} process(es) under a launcher may not be read (pid {pids})"
        return (Gap("discovery", reason, hint="run the agent as the job's user or as root"),)


def find_ranks(root: int | None = None, beats: Mapping[int, Beat] = _NO_BEATS) -> Discovery:
    """Look once; see ``RankFinder`` for doing so every second."""
    return RankFinder().find(root, beats)


def _key(candidate: Candidate) -> tuple[str, int, int]:
    """What a family shares."""
    return (candidate.job_id, candidate.rank, candidate.restart)


def _is_started_by(candidate: Candidate, ancestor: Candidate) -> bool:
    """Whether the candidate is a rank the ancestor started, rather than a child with the ancestor's own rank."""
    if candidate.initialized and candidate.process.pid != ancestor.process.pid:
        return (candidate.job_id, candidate.rank) != (ancestor.job_id, ancestor.rank) or not ancestor.firm
    return candidate.local_rank is not None and ancestor.local_rank is None and _key(candidate) != _key(ancestor)


def _are_titled(spawned: Iterable[Candidate]) -> bool:
    """Whether the titles of all of them number them."""
    titles = [candidate.process.title for candidate in spawned]
    return all(title is not None and title.rank_hint is not None for title in titles)


def _spawn_gaps(spawned: Sequence[Candidate]) -> tuple[Gap, ...]:
    """Says that ranks were inferred."""
    pids = ", ".join(str(candidate.process.pid) for candidate in spawned)
    if not pids:
        return ()
    order = "the order of their titles" if _are_titled(spawned) else "the order they were started"
    reason = f"no environment names the ranks of processes {pids}: they are numbered in {order}"
    return (Gap("discovery", reason, hint=_PROBE_HINT),)
