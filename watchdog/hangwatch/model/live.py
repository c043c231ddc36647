"""How the ranks of a job stand at this moment: what a page or a table of ranks shows. Imports nothing else of ours."""

from __future__ import annotations

import msgspec

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident


class RankProgress(msgspec.Struct, frozen=True):
    """One rank in one group. ``behind``: operations behind the group's front; ``in_flight_s`` None where nothing is."""

    group: str
    enqueued: int
    completed: int
    behind: int
    in_flight_s: float | None = None


class LiveRank(msgspec.Struct, frozen=True):
    """One rank. ``state`` is a word; ``beat_age_s`` None without a probe; ``frame`` its top frame, where it was read."""

    rank: int
    node: str
    pid: int
    state: str
    beat_age_s: float | None = None
    groups: tuple[RankProgress, ...] = ()
    frame: str | None = None


class GroupFront(msgspec.Struct, frozen=True):
    """How far a group has come, over the members that can be seen.

    ``label`` tells the groups of a job apart. ``front`` is the highest sequence number any member has enqueued, ``slowest``
    the lowest, ``completed`` the lowest that has completed; ``behind`` the ranks that are not at the front.
    """

    label: str
    ranks: tuple[int, ...]
    front: int
    slowest: int
    completed: int
    behind: tuple[int, ...] = ()
    in_flight_s: float | None = None


class LiveJob(msgspec.Struct, frozen=True):
    """One job, with the incident that is open and the capture it rests on."""

    id: str
    world_size: int | None = None
    launcher: str = "plain"
    command: str = ""
    ranks: tuple[LiveRank, ...] = ()
    groups: tuple[GroupFront, ...] = ()
    incident: Incident | None = None
    capture: Capture | None = None


class LiveView(msgspec.Struct, frozen=True):
    """All jobs of a node. ``at_ns``: wall clock of the observation, 0 before the first."""

    at_ns: int = 0
    jobs: tuple[LiveJob, ...] = ()
