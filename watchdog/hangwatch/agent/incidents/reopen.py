"""Incidents that an earlier agent left open: resumed for their job, or ended if the job is gone.

May import the sources, the diagnosis and the outputs. An incident is resumed for a job if the ranks in its bundle are the
processes that run now (pid and start time); it is over when none of them lives. One of another node is left to that node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from hangwatch.agent.capturing.local_ranks import is_same_process
from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankIdentity
from hangwatch.model.incident import Incident, Kind
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import BundleError, read_bundle
from hangwatch.sources.proc.files import is_same_start, node_name, read_stat


@dataclass(frozen=True)
class LeftOpen:
    """An open incident on disk, its capture, and the ranks of it that were on this node."""

    incident: Incident
    capture: Capture
    path: Path
    here: tuple[RankIdentity, ...]

    @property
    def kind(self) -> Kind:
        """The kind of the incident's verdict."""
        return self.incident.verdict.kind

    def is_of(self, ranks: Iterable[RankIdentity]) -> bool:
        """Return whether these are its ranks: at least one is known to both, and all of those are the same processes."""
        now = {identity.rank: identity for identity in ranks}
        both = [(one, now[one.rank]) for one in self.here if one.rank in now]
        return bool(both) and all(is_same_process(a, b) for a, b in both)

    def lives(self) -> bool:
        """Return whether any of its ranks still runs."""
        stats = ((one, read_stat(one.pid)) for one in self.here)
        return any(
            stat is not None and stat.state != "Z" and is_same_start(stat, one.start_time) for one, stat in stats
        )

    def as_record(self) -> IncidentRecord:
        """Return the incident as if this agent had reported it."""
        return IncidentRecord(self.incident, diagnose(self.capture), self.path, _parse_ns(self.incident.onset_at))


@dataclass
class Reopening:
    """The open incidents of a state directory, until each has found its job or its end."""

    waiting: list[LeftOpen] = field(default_factory=list)

    def take(self, ranks: Iterable[RankIdentity]) -> tuple[LeftOpen, ...]:
        """Remove and return the incidents of the job with these ranks."""
        known = tuple(ranks)
        found = tuple(one for one in self.waiting if one.is_of(known))
        self.waiting = [one for one in self.waiting if one not in found]
        return found

    def take_ended(self) -> tuple[LeftOpen, ...]:
        """Remove and return the incidents whose job is gone."""
        ended = tuple(one for one in self.waiting if not one.lives())
        self.waiting = [one for one in self.waiting if one not in ended]
        return ended


def find_left_open(state_dir: Path) -> Reopening:
    """Return the open incidents in ``state_dir`` that have ranks on this node. Bundles that cannot be read are skipped."""
    node = node_name()
    found = []
    for summary in Archive(state_dir).list():
        path = state_dir.absolute() / "incidents" / summary.id
        if not summary.open:
            continue
        try:
            incident, capture = read_bundle(path)
        except BundleError:
            continue
        here = tuple(rank.identity for rank in capture.ranks if rank.identity.node == node)
        if incident is not None and here:
            found.append(LeftOpen(incident, capture, path, here))
    return Reopening(found)


def _parse_ns(moment: str) -> int:
    """Return an RFC 3339 time as nanoseconds since the epoch: an earlier agent has left nothing more exact."""
    since = datetime.fromisoformat(moment.replace("Z", "+00:00")) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
