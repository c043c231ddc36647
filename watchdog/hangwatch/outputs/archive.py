"""Summaries of the incidents in a state directory. May import the model and msgspec.

The document of a job with thousands of ranks takes megabytes, so each is read again only after it has changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from hangwatch.model.incident import DUMP_SUFFIX, JobEntry, Kind, Severity


class _Cause(msgspec.Struct, frozen=True):
    id: str


class _Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    proven: bool
    severity: Severity
    summary: str
    culprit_ranks: tuple[int, ...] = ()
    names: dict[int, str] = {}
    cause: _Cause | None = None


class _Document(msgspec.Struct, frozen=True):
    """The fields of ``incident.json`` (``hangwatch.incident/3``) that a list shows."""

    id: str
    job: JobEntry
    onset_at: str
    ended_at: str | None
    verdict: _Verdict


class IncidentSummary(msgspec.Struct, frozen=True):
    """An incident in one line.

    ``job``: its job's id; ``title``: what people call the job. ``onset_at``, ``ended_at``: RFC 3339.
    """

    id: str
    job: str
    title: str
    onset_at: str
    ended_at: str | None
    kind: Kind
    proven: bool
    severity: Severity
    summary: str
    culprit_ranks: tuple[int, ...]
    names: dict[int, str] = {}
    cause: str = "unknown"

    @property
    def state(self) -> Literal["open", "over", "dump"]:
        """Whether the incident is open or over; ``dump`` if ``hangwatch dump`` wrote it and no agent watches it."""
        if self.id.endswith(DUMP_SUFFIX):
            return "dump"
        return "open" if self.ended_at is None else "over"

    @property
    def open(self) -> bool:
        """True if the incident has not ended; always False for one that ``hangwatch dump`` wrote."""
        return self.state == "open"


class Archive:
    """Lists ``STATE_DIR/incidents``; not thread-safe."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "incidents"
        self._known: dict[str, tuple[tuple[int, int], IncidentSummary | None]] = {}

    def list(self) -> tuple[IncidentSummary, ...]:
        """Return all readable incidents, newest onset first. Never raises."""
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
        title=document.job.title,
        onset_at=document.onset_at,
        ended_at=document.ended_at,
        kind=verdict.kind,
        proven=verdict.proven,
        severity=verdict.severity,
        summary=verdict.summary,
        culprit_ranks=verdict.culprit_ranks,
        names=verdict.names,
        cause=verdict.cause.id if verdict.cause is not None else "unknown",
    )
