"""An incident that was reported, as the agent keeps it in memory, and who else keeps it.

A record is frozen: only ``lifecycle`` replaces it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.incident import HANG_KINDS, Incident, SecondLook

#: Called with an incident and the folder of its bundle, None where there is none.
Announce = Callable[[Incident, Path | None], Awaitable[None]]
#: The same where the second look at one stands in another way, and whether this node owns it: no news for the receivers.
TellStand = Callable[[Incident, Path | None, bool], Awaitable[None]]


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
    def stands(self) -> bool:
        """True if it is a hang that the second look has confirmed."""
        return self.incident.verdict.kind in HANG_KINDS and self.incident.may_be_acted_on

    @property
    def id(self) -> str:
        """The incident's id, which is also the name of its bundle."""
        return self.incident.id


def withhold(incident: Incident, why: str) -> Incident:
    """Return the incident as one that is reported and never acted on, for the reason ``why``."""
    look = incident.second_look
    return msgspec.structs.replace(incident, second_look=SecondLook("", "", look.action if look else "", why))


async def announce_to_nobody(incident: Incident, path: Path | None) -> None:
    """Do nothing. An ``Announce`` for an agent that notifies nobody."""
    del incident, path


async def tell_nobody(incident: Incident, path: Path | None, owned: bool) -> None:
    """Do nothing. A ``TellStand`` for an agent that takes no actions."""
    del incident, path, owned


class Sharing:
    """The other nodes, as far as an incident concerns them: here, none. A fleet has its own subclass. Neither raises."""

    async def share(self, record: IncidentRecord, *, announced: bool, complete: bool = False) -> None:
        """Let them know of the incident as it is now, if this node speaks for the job.

        ``announced``: the receivers have been notified. ``complete``: nothing more is needed of the ranks for the bundle.
        """

    async def await_completion(self, record: IncidentRecord) -> None:
        """Return when the node that owns the incident has all it needs of the ranks, or it takes too long."""
