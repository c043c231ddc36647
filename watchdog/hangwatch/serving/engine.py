"""One serving engine under watch: regular requests for its metrics, beside the tick, and what the answers say.

May import the model, the analysis, the sources and its own room. Of its processes only their existence is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from hangwatch.model.capture import RankIdentity
from hangwatch.model.numbers import guest_number
from hangwatch.model.serving import TITLES, EngineKind, EngineState
from hangwatch.serving.analysis.demand import DemandClock
from hangwatch.serving.sources.metrics import parse_engine
from hangwatch.serving.sources.processes import find_listener, find_members, find_top
from hangwatch.sources.connections.endpoint import fetch
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.proc.files import is_zombie, node_name, read_stat

log = logging.getLogger("hangwatch")

#: Seconds between two requests: a third of Prometheus' default interval; less only if the patience is short.
PERIOD_S = 5.0
SHORTEST_PERIOD_S = 1.0
#: Seconds between requests to what may be no engine: doubled each time, up to the second value.
_UNKNOWN_PERIOD_S = 2.5
_UNKNOWN_LONGEST_S = 60.0
#: An engine that has not answered for so long is said not to answer: one busy step may hold up its server for some seconds.
SILENT_AFTER_S = 15.0
#: A process that ended so long before the last progress was seen may have been the reason for it.
_READING_SKEW_S = 2.0
#: Metrics are at one of these where the address names no path; the second is TensorRT-LLM's.
_PATHS = ("/metrics", "/prometheus/metrics")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class _Member:
    """A process of the engine: its name, since when it exists, and since when it is gone (monotonic)."""

    identity: RankIdentity
    since_s: float
    gone_s: float | None = None


@dataclass
class EngineWatch:
    """The engine at ``url``.

    ``known``: True once it has answered as an engine; until then it may be loading. ``stall_after_s``: the user's
    patience; None to learn it. ``found``: the user did not name it, so something else may listen there; it is asked
    ever more rarely.
    """

    url: str
    stall_after_s: float | None = None
    kind: EngineKind | None = None
    top: int | None = None
    front: int | None = None
    found: bool = False
    clock: DemandClock = field(default_factory=DemandClock)
    asked_s: float = float("-inf")
    _path: int = 0
    _misses: int = 0
    _answered_s: float | None = None
    _asking: asyncio.Task[bytes | str] | None = None
    _members: dict[int, _Member] = field(default_factory=dict)
    _silent: bool = False

    @property
    def known(self) -> bool:
        """True once it has answered as an engine."""
        return self.kind is not None

    @property
    def address(self) -> str:
        """Host and port, as people know it."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port at which the engine answers."""
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def pids(self) -> frozenset[int]:
        """The pids of its living processes."""
        return frozenset(pid for pid, member in self._members.items() if member.gone_s is None)

    def take_answer(self, now_s: float) -> None:
        """Take in the answer, if there is a new one."""
        if self._asking is not None and self._asking.done():
            asked, self._asking = self._asking, None
            self._take_in(asked.result(), now_s)

    def ask(self, now_s: float) -> bool:
        """Send a request if it is time, without waiting for the answer; True if one was sent."""
        if self._asking is None and now_s - self.asked_s >= self._period_s:
            self.asked_s = now_s
            path = "" if urlsplit(self.url).path else _PATHS[self._path]
            self._asking = asyncio.create_task(fetch(f"{self.url}{path}"), name=f"hangwatch engine {self.address}")
            return True
        return False

    async def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    def follow(self, processes: Mapping[int, KnownProcess], now_s: float) -> None:
        """Take in its current processes."""
        if not self.known:
            return
        if self.front not in self.pids or self.front not in processes:
            self._begin(find_listener(processes, self.port), processes)
        for process in find_members(processes, self.top or 0):
            if process.pid not in self._members:
                age_s = max(0.0, time.time() - process.start_time)
                self._members[process.pid] = _Member(self._identify(process), now_s - age_s)
        self._note_gone(now_s)

    def _begin(self, listener: KnownProcess | None, processes: Mapping[int, KnownProcess]) -> None:
        """Forget all but the learnt patience, because another process answers now, or none."""
        if self.front is not None:
            self.clock.restart()
            self._answered_s = None
        self._members = {}
        self.front = listener.pid if listener is not None else None
        self.top = find_top(processes, listener).pid if listener is not None else None

    def state(self, now_s: float, ranks: frozenset[int]) -> EngineState | None:
        """Return its current state; None before its first answer, and once it has ended.

        ``ranks``: the pids of its ranks in a job. An engine whose server has ended is no hang: its clients notice,
        and whoever started it may restart it.
        """
        self._note_gone(now_s)
        demand = self.clock.worst(now_s)
        ended = self.front is not None and self.front not in self.pids
        if self.kind is None or demand is None or self._answered_s is None or ended:
            return None
        beside = self.beside(now_s, ranks)
        gone = {i.rank: at_s for i in beside if (at_s := self._members[i.pid].gone_s) is not None}
        silent_s = now_s - self._answered_s
        return EngineState(
            kind=self.kind,
            address=self.address,
            running=demand.part.running,
            waiting=demand.part.waiting,
            demand_s=demand.demand_s,
            still_s=demand.still_s,
            patience_s=self.clock.patience_s(self.stall_after_s),
            silent_s=silent_s if silent_s >= SILENT_AFTER_S else 0.0,
            tokens=demand.part.tokens,
            front=next((i.rank for i in beside if i.pid == self.front), None),
            beside=tuple(i.rank for i in beside),
            lost=tuple(sorted(n for n, gone_s in gone.items() if gone_s == min(gone.values()))),
        )

    def beside(self, now_s: float, ranks: frozenset[int]) -> tuple[RankIdentity, ...]:
        """Return its processes that are no ranks: living ones, and those that existed at the last progress."""
        demand = self.clock.worst(now_s)
        still_s = demand.still_s if demand is not None else 0.0
        progress_s = now_s - still_s - _READING_SKEW_S - self._period_s
        members = [m for m in self._members.values() if m.identity.pid not in ranks]
        # A process that ended long before was no longer needed; a new one may be a short-lived helper.
        return tuple(
            m.identity for m in members if m.gone_s is None or (m.gone_s >= progress_s and m.since_s <= progress_s)
        )

    @property
    def _period_s(self) -> float:
        if not self.known and self.found:
            return min(_UNKNOWN_PERIOD_S * (1 << self._misses), _UNKNOWN_LONGEST_S)
        return min(PERIOD_S, max(SHORTEST_PERIOD_S, self.clock.patience_s(self.stall_after_s) / 4))

    def _take_in(self, answer: bytes | str, now_s: float) -> None:
        reading = parse_engine(answer) if isinstance(answer, bytes) else None
        if reading is None:
            self._misses = min(self._misses + 1, 16)
            self._path = self._path if self.known else (self._path + 1) % len(_PATHS)
            if self._answered_s is not None and not self._silent and now_s - self._answered_s >= SILENT_AFTER_S:
                self._silent = True
                why = answer if isinstance(answer, str) else "the response is not an engine's metrics"
                log.warning("%s at %s does not respond: %s", self.title, self.address, why)
            return
        if not self.known:
            log.info("%s serves at %s", TITLES[reading.kind], self.address)
        elif self._silent:
            log.info("%s at %s responds again", self.title, self.address)
        self.kind, self._answered_s, self._silent = reading.kind, now_s, False
        self.clock.update(reading, now_s)

    @property
    def title(self) -> str:
        """The product's name: ``vLLM``; ``the engine`` if it is not known yet."""
        return TITLES[self.kind] if self.kind is not None else "the engine"

    @property
    def over(self) -> bool:
        """True if nothing answers there any more."""
        return self.known and self.front is None

    def _note_gone(self, now_s: float) -> None:
        for pid, member in self._members.items():
            stat = read_stat(pid) if member.gone_s is None else None
            if member.gone_s is None and (stat is None or is_zombie(stat)):
                self._members[pid] = _Member(member.identity, member.since_s, now_s)

    def _identify(self, process: KnownProcess) -> RankIdentity:
        """Return a process with a number and a name that stay the same as long as it lives."""
        title = process.title.name if process.title is not None else ""
        name = title or (f"{self.title}-server" if process.pid == self.front else f"{self.title}-process-{process.pid}")
        return RankIdentity(
            rank=guest_number(f"{self.url} {name}", 0),
            pid=process.pid,
            start_time=process.start_time,
            node=node_name(),
            world=name,
            title=title,
        )
