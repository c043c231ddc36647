"""An incident that was reported, as the agent keeps it in memory. Frozen: ``lifecycle`` alone makes another of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.incident import Incident

#: Called with an incident and the folder of its bundle, None where there is none.
Announce = Callable[[Incident, Path | None], Awaitable[None]]


@dataclass(frozen=True)
class IncidentRecord:
    """The document of an incident, the diagnosis it rests on, and its bundle (``path``).

    ``onset_ns``: when the hang began (wall clock). ``owned_by_peer``: another node has reported it, and will report its end.
    ``partial``: its bundle holds the ranks of this node alone.
    """

    incident: Incident
    diagnosis: Diagnosis
    path: Path | None
    onset_ns: int
    active: bool = True
    owned_by_peer: bool = False
    partial: bool = False

    @property
    def id(self) -> str:
        """The incident's id, which is its bundle's name."""
        return self.incident.id


async def announce_to_nobody(incident: Incident, path: Path | None) -> None:
    """An ``Announce`` for what is no news to anybody here."""
    del incident, path
