"""The serving engines of a node: those that the user named, and those found by their processes.

May import the model, the sources and its own room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hangwatch.model.capture import Job
from hangwatch.serving.engine import EngineWatch
from hangwatch.serving.sources.processes import Endpoint, find_endpoints
from hangwatch.sources.discovery.found_jobs import FoundJob
from hangwatch.sources.discovery.launchers import read_script
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.proc.files import node_name
from hangwatch.sources.redaction import redact_command, redact_text

#: How often engines and their processes are searched, in seconds.
_LOOK_PERIOD_S = 5.0
_LOOPBACK = "127.0.0.1"


@dataclass
class Engines:
    """Watches engines. ``urls``: those that the user named. ``stall_after_s``: the user's patience; None to learn it."""

    urls: Iterable[str] = ()
    stall_after_s: float | None = None
    watches: dict[str, EngineWatch] = field(default_factory=dict)
    _looked_s: float = float("-inf")
    _candidates: dict[Endpoint, EngineWatch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Watch the named engines from the start: they may be loading."""
        self.watches = {url: EngineWatch(url, self.stall_after_s) for url in self.urls}

    def tick(self, processes: Mapping[int, KnownProcess], jobs: Iterable[FoundJob], now_s: float) -> None:
        """Take in answers, ask at most one engine, and sometimes look for engines' processes.

        Never waits.
        """
        for watch in self._all():
            known = watch.known
            watch.take_answer(now_s)
            if watch.known and not known:
                self._looked_s = float("-inf")  # look at once for its processes
        if now_s - self._looked_s >= _LOOK_PERIOD_S:
            self._looked_s = now_s
            self._look(processes, jobs, now_s)
        waiting = sorted(self._all(), key=lambda watch: watch.asked_s)
        next((watch for watch in waiting if watch.ask(now_s)), None)

    def set_patience(self, stall_after_s: float | None) -> None:
        """Replace the patience."""
        self.stall_after_s = stall_after_s
        for watch in self._all():
            watch.stall_after_s = stall_after_s

    async def close(self) -> None:
        """Stop asking."""
        for watch in self._all():
            await watch.close()

    def assign(
        self, jobs: Iterable[FoundJob], before: Mapping[str, Iterable[EngineWatch]]
    ) -> dict[str, tuple[EngineWatch, ...]]:
        """Return the engines of each job.

        An engine without a job makes up one of its own, named after its kind and port. ``before``: what this returned
        the last time. An engine stays with a job whose ranks are gone until it has other ranks: that they are gone
        may be why it makes no progress.
        """
        owners: dict[str, str] = {}
        for job in jobs:
            pids = {rank.pid for rank in job.ranks}
            for watch in self.watches.values():
                if not pids.isdisjoint(watch.pids):
                    owners.setdefault(watch.url, job.job.id)
        for job_id, watches in before.items():
            for watch in watches:
                owners.setdefault(watch.url, job_id)
        found: dict[str, tuple[EngineWatch, ...]] = {}
        for watch in self.watches.values():
            if watch.known and not watch.over:
                job_id = owners.get(watch.url, f"{watch.kind}-{watch.port}")
                found[job_id] = (*found.get(job_id, ()), watch)
        return found

    def _all(self) -> list[EngineWatch]:
        return [*self.watches.values(), *self._candidates.values()]

    def _look(self, processes: Mapping[int, KnownProcess], jobs: Iterable[FoundJob], now_s: float) -> None:
        for watch in self.watches.values():
            watch.follow(processes, now_s)
        self.watches = {url: w for url, w in self.watches.items() if not (w.found and w.over)}
        meeting = {rank.meeting_port for job in jobs for rank in job.ranks if rank.meeting_port is not None}
        watched = {watch.port for watch in self.watches.values()}
        endpoints = {e for e in find_endpoints(processes, meeting) if e.port not in watched}
        for endpoint in list(self._candidates):
            watch = self._candidates[endpoint]
            if watch.known:
                self.watches[watch.url] = self._candidates.pop(endpoint)
                watch.follow(processes, now_s)
            elif endpoint not in endpoints:
                del self._candidates[endpoint]  # a pending answer belongs to no engine
        for endpoint in endpoints - self._candidates.keys():
            url = f"http://{_LOOPBACK}:{endpoint.port}{endpoint.path}"
            if url not in self.watches:
                self._candidates[endpoint] = EngineWatch(url, self.stall_after_s, found=True)


def as_job(name: str, watch: EngineWatch, processes: Mapping[int, KnownProcess]) -> FoundJob:
    """Return an engine without a job as a job without ranks.

    Only its metrics are read until there is a suspicion.
    """
    top = processes.get(watch.top) if watch.top is not None else None
    arguments = top.arguments if top is not None else ()
    kind = watch.kind or urlsplit(watch.url).netloc
    command, script = redact_command(arguments), redact_text(read_script(arguments))
    job = Job(id=name, nodes=(node_name(),), launcher=kind, command=command, name=name, script=script)
    return FoundJob(job, ())
