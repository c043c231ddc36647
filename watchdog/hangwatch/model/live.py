"""The state of a job's ranks at this moment: what the page, the metrics and the table of ranks show."""

from __future__ import annotations

import msgspec

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.model.text import describe_job


class LiveRank(msgspec.Struct, frozen=True):
    """One rank. ``state`` is a word; ``beat_age_s`` None without a probe; ``frame`` its top frame, where it was read.

    ``name``: what it is called where it is of another world than the job's own.
    """

    rank: int
    node: str
    pid: int
    state: str
    beat_age_s: float | None = None
    groups: tuple[LiveProgress, ...] = ()
    frame: str | None = None
    name: str = ""

    @property
    def called(self) -> str:
        """Its rank, or its name."""
        return self.name or str(self.rank)


class LiveJob(msgspec.Struct, frozen=True):
    """One job, with the incident that is open and the capture it is based on."""

    id: str
    world_size: int | None = None
    launcher: str = "plain"
    command: str = ""
    ranks: tuple[LiveRank, ...] = ()
    groups: tuple[GroupFront, ...] = ()
    incident: Incident | None = None
    capture: Capture | None = None
    role: str = ""

    @property
    def described(self) -> str:
        """Its launcher and size in words; what its own ranks do, where there are others."""
        return describe_job(self.launcher, self.world_size, self.role if self.names else "")

    @property
    def names(self) -> dict[int, str]:
        """What processes of other worlds than the job's own are called, by number."""
        return {one.rank: one.name for one in self.ranks if one.name}


class LiveView(msgspec.Struct, frozen=True):
    """All jobs of a node. ``at_ns``: wall clock of the observation, 0 before the first."""

    at_ns: int = 0
    jobs: tuple[LiveJob, ...] = ()
