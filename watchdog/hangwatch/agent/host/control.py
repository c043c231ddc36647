"""Ends or restarts a job because of an incident: the protocol, and its implementation for jobs that others started.

A job is restarted from below: its ranks are ended, and their supervisor starts them anew. May import its own room,
the model and the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from hangwatch.agent.host.launch import end_job, end_ranks
from hangwatch.model.capture import RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.model.numbers import is_guest
from hangwatch.sources.proc.samples import find_living, is_supervised


class JobControl(Protocol):
    """What can be done to the job of an incident, on this node."""

    async def stop(self, incident: Incident) -> str:
        """End the job: launcher, ranks, and all below. Returns in words how that went."""

    async def restart(self, incident: Incident) -> str:
        """End the ranks, so that the job starts anew from its checkpoint. Returns in words how that went."""

    def why_no_restart(self, incident: Incident) -> str:
        """Return why the job cannot be restarted any more, so that it must be stopped; empty if it can."""

    def launcher_restarts(self, incident: Incident) -> bool:
        """True if the launcher itself restarts the ranks once one of them has failed."""


def count_restarts_left(ranks: Collection[RankIdentity], supervised: Callable[[RankIdentity], bool]) -> int:
    """Return how often the launcher will still restart these ranks: the rest of torchrun's ``--max-restarts``, else 0.

    torchrun's elastic agent gives each rank TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS; when a rank
    fails, it restarts all while the first is below the second (torch 2.13, ``elastic/agent/server/api.py``:
    ``_invoke_run``). accelerate starts ranks through the same agent. ``supervised``: returns True if that agent
    lives. Processes of other worlds have launchers of their own.
    """
    own = [one for one in ranks if not is_guest(one.rank)]
    return min((max(0, one.max_restarts - one.restart) if supervised(one) else 0 for one in own), default=0)


def ranks_of(incident: Incident, known: Sequence[RankIdentity]) -> list[RankIdentity]:
    """Return those of the ``known`` processes that live and that the incident is about.

    The job may have been restarted meanwhile.
    """
    pids = {entry.pid for entry in incident.ranks}
    return [one for one in find_living(known) if one.pid in pids]


class NodeControl:
    """Controls the jobs that a node's agent found. ``known``: returns the ranks of a job on this node, by its id."""

    def __init__(self, known: Callable[[str], Sequence[RankIdentity]]) -> None:
        self._known = known

    async def stop(self, incident: Incident) -> str:
        """End the job, including its launcher on this node."""
        return (await end_job(self._known(incident.job.id))).in_words()

    async def restart(self, incident: Incident) -> str:
        """End the ranks.

        If the launcher does not restart them, whoever started the launcher must.
        """
        ranks = ranks_of(incident, self._known(incident.job.id))
        left = count_restarts_left(ranks, is_supervised)
        ended = await end_ranks(ranks)
        return f"{ended.in_words()}; {name_restarter(ranks, left)}" if ended.asked else ended.in_words()

    def why_no_restart(self, incident: Incident) -> str:
        """Return an empty text: the ranks can always be ended."""
        del incident
        return ""

    def launcher_restarts(self, incident: Incident) -> bool:
        """True if torchrun has restarts left."""
        return count_restarts_left(ranks_of(incident, self._known(incident.job.id)), is_supervised) > 0


def name_restarter(ranks: Sequence[RankIdentity], left: int) -> str:
    """Return who restarts the job if hangwatch did not start its launcher."""
    if left:
        total = ranks[0].max_restarts
        return f"torchrun restarts them (restart {total - left + 1} of {total})"
    return "the launcher does not restart them, so restart the job yourself"
