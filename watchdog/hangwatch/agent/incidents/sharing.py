"""Who else keeps an incident: how a lifecycle lets the other nodes of the job know, and what it does where there is none."""

from __future__ import annotations

from typing import Protocol

from hangwatch.agent.incidents.record import IncidentRecord


class Sharing(Protocol):
    """The other nodes, as far as an incident concerns them. Nothing here raises where they cannot be reached."""

    async def share(self, record: IncidentRecord, *, announced: bool, complete: bool = False) -> None:
        """Let them know of the incident as it is now, if this node speaks for the job.

        ``announced``: the receivers have been notified. ``complete``: nothing more is needed of the ranks for the bundle.
        """
        ...

    async def await_completion(self, record: IncidentRecord) -> None:
        """Return when the node that owns the incident has all it needs of the ranks, or it takes too long."""
        ...


class Unshared:
    """There is no other node."""

    async def share(self, record: IncidentRecord, *, announced: bool, complete: bool = False) -> None:
        """Nobody is to know."""

    async def await_completion(self, record: IncidentRecord) -> None:
        """Nobody is waited for."""
