"""Summaries of the incidents in a state directory. May import the model and msgspec.

The document of a job with thousands of ranks has megabytes, so each is read again only after it has changed.
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
    names: dict[int, str] = {}


class _Job(msgspec.Struct, frozen=True):
    id: str


class _Document(msgspec.Struct, frozen=True):
    """The fields of ``incident.json`` (``hangwatch.incident/2``) that a list shows."""

    id: str
    job: _Job
    onset_at: str
    ended_at: str | None
    verdict: _Verdict


class IncidentSummary(msgspec.Struct, frozen=True):
    """An incident in one line. ``onset_at`` and ``ended_at`` are RFC 3339."""

    id: str
    job: str
    onset_at: str
    ended_at: str | None
    kind: Kind
    proven: bool
    severity: Severity
    summary: str
    culprit_ranks: tuple[int, ...]
    names: dict[int, str] = {}

    @property
    def open(self) -> bool:
        """Whether it has not ended; dumps written by ``hangwatch dump`` are never open."""
        return self.ended_at is None and not self.id.endswith(DUMP_SUFFIX)


class Archive:
    """Lists ``STATE_DIR/incidents``; not thread-safe."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "incidents"
        self._known: dict[str, tuple[tuple[int, int], IncidentSummary | None]] = {}

    def list(self) -> tuple[IncidentSummary, ...]:
        """All readable incidents, newest onset first. Never raises."""
        try:
            names = [entry.name for entry in os.scandir(self._folder)]
        except OSError:
            names = []
        self._known = {name: self._read(name) for name in names}
        found = [summary for _, summary in self._known.values() if summary is not None]
        return tuple(sorted(found, key=lambda one: (one.onset_at, one.id), reverse=True))

    def _read(self, name: str) -> tuple[tuple[int, int], IncidentSummary | None]:
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
    # An incident is looked up by folder name, so a document in a folder of another name is ignored.
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
        names=verdict.names,
    )
