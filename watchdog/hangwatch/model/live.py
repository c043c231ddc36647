"""The current state of a job's ranks, for the page, the metrics and the table of ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

import msgspec

from hangwatch.model.capture import Capture
from hangwatch.model.incident import HANG_KINDS, Incident, RankEntry
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.model.text import describe_job, title_job


class LiveRank(msgspec.Struct, frozen=True):
    """One rank.

    ``state``: one word. ``beat_age_s``: None without a probe. ``frame``: its top frame, if read.
    ``name``: its name, if it is of another world than the job's own.
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
        """Its name, or its number if it has none."""
        return self.name or str(self.rank)


class LastToJoin(msgspec.Struct, frozen=True):
    """Who joined a group's operations last between two times (wall clock): ``rank`` in ``times`` of ``operations``.

    ``late_ns``: how long after the median of the others, in the median of these. ``slices``: the same by equal parts of the
    time, oldest first; without those in which no operation was complete.
    """

    rank: int
    times: int
    operations: int
    late_ns: int
    began_ns: int
    ended_ns: int
    slices: tuple[LastToJoin, ...] = ()


class LiveJob(msgspec.Struct, frozen=True, dict=True):
    """One job, with its open incident and the capture behind that.

    ``name``, ``script``: as in ``JobEntry``. ``stall_after_s``: its stall timeout; None outside an agent.
    ``stall_why``: why it is that long, in words. ``last_to_join``: by ``GroupFront.key``, as far as known.
    """

    id: str
    world_size: int | None = None
    launcher: str = "plain"
    command: str = ""
    ranks: tuple[LiveRank, ...] = ()
    groups: tuple[GroupFront, ...] = ()
    incident: Incident | None = None
    capture: Capture | None = None
    role: str = ""
    name: str = ""
    script: str = ""
    stall_after_s: float | None = None
    stall_why: str = ""
    last_to_join: Mapping[Hashable, LastToJoin] = {}

    @property
    def title(self) -> str:
        """The title for people, as ``JobEntry.title``."""
        return title_job(self.id, self.name, self.script)

    @property
    def described(self) -> str:
        """Its launcher and size in words. If the job has other worlds, also the role of its own ranks."""
        return describe_job(self.launcher, self.world_size, self.role if self.names else "")

    @cached_property
    def known(self) -> dict[int, LiveRank | RankEntry]:
        """Every rank of which something is known, by number: those of this node, and those that an open hang names."""
        known: dict[int, LiveRank | RankEntry] = {}
        if self.incident is not None and self.incident.verdict.kind in HANG_KINDS:
            known.update((entry.rank, entry) for entry in self.incident.ranks)
        known.update((one.rank, one) for one in self.ranks)
        return known

    @property
    def names(self) -> dict[int, str]:
        """The names of processes of worlds other than the job's own, by number."""
        return {number: one.name for number, one in self.known.items() if one.name}


class LiveView(msgspec.Struct, frozen=True):
    """All jobs of a node. ``at_ns``: wall clock of the observation, 0 before the first."""

    at_ns: int = 0
    jobs: tuple[LiveJob, ...] = ()
