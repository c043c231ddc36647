"""The incidents of a state directory in brief. May import the model and msgspec.

A document of a job of thousands of ranks has megabytes; it is read once for each time it was written.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hangwatch.model.incident import DUMP_SUFFIX, Kind, Severity


class _Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    proven: bool
    severity: Severity
    summary: str
    culprit_ranks: tuple[int, ...] = ()


class _Job(msgspec.Struct, frozen=True):
    id: str


class _Document(msgspec.Struct, frozen=True):
    """Of ``incident.json`` (``hangwatch.incident/1``) what a list shows."""

    id: str
    job: _Job
    onset_at: str
    ended_at: str | None
    verdict: _Verdict


class IncidentSummary(msgspec.Struct, frozen=True):
    """An incident in a line. ``onset_at`` and ``ended_at`` are RFC 3339."""

    id: str
    job: str
    onset_at: str
    ended_at: str | None
    kind: Kind
    proven: bool
    severity: Severity
    summary: str
    culprit_ranks: tuple[int, ...]

    @property
    def open(self) -> bool:
        """Whether it is not over; what ``hangwatch dump`` has written is no incident that somebody watches."""
        return self.ended_at is None and not self.id.endswith(DUMP_SUFFIX)


class Archive:
    """Lists ``STATE_DIR/incidents``; not for use by two threads at once."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "incidents"
        self._known: dict[str, tuple[tuple[int, int], IncidentSummary | None]] = {}

    def list(self) -> tuple[IncidentSummary, ...]:
        """All incidents that can be read, the newest onset first. Never raises."""
        try:
            names = [entry.name for entry in os.scandir(self._folder)]
        except OSError:
            names = []
        self._known = {name: self._look(name) for name in names}
        found = [summary for _, summary in self._known.values() if summary is not None]
        return tuple(sorted(found, key=lambda one: (one.onset_at, one.id), reverse=True))

    def _look(self, name: str) -> tuple[tuple[int, int], IncidentSummary | None]:
        file = self._folder / name / "incident.json"
        try:
            status = file.stat()
            version = (status.st_mtime_ns, status.st_size)
            if name in self._known and self._known[name][0] == version:
                return self._known[name]
            document = msgspec.json.decode(file.read_bytes(), type=_Document) if file.is_file() else None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return (0, 0), None
        return version, _summarize(document, name)


def _summarize(document: _Document | None, name: str) -> IncidentSummary | None:
    # The folder's name is what the incident is asked for by: a document that was moved elsewhere is none of ours.
    if document is None or document.id != name:
        return None
    verdict = document.verdict
    return IncidentSummary(
        id=document.id,
        job=document.job.id,
        onset_at=document.onset_at,
        ended_at=document.ended_at,
        kind=verdict.kind,
        proven=verdict.proven,
        severity=verdict.severity,
        summary=verdict.summary,
        culprit_ranks=verdict.culprit_ranks,
    )
