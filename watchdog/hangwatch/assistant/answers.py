"""The typed results of the tools: a contract with coding agents. Standard library only.

Sets of ranks are text (``0-6,8``; ``none``). Times are RFC 3339 in UTC. ``total`` is the number of all items.
``next_offset`` is the offset of the next page; None on the last one. Text that comes from a job is one line without
control characters, cut if long.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IncidentLine:
    """One incident in a list. ``open``: the hang has not ended."""

    id: str
    job: str
    kind: str
    proven: bool
    severity: str
    summary: str
    culprit_ranks: str
    onset_at: str
    ended_at: str | None
    open: bool


@dataclass(frozen=True)
class IncidentPage:
    """Incidents, the latest onset first."""

    incidents: tuple[IncidentLine, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True)
class SideAnswer:
    """One side: its ranks, the operation they are in, the line of the user's code, and the library line it went through."""

    name: str
    ranks: str
    operation: str | None
    file: str | None
    line: int | None
    function: str | None
    source: str | None
    via: str | None


@dataclass(frozen=True)
class CauseAnswer:
    """Why it happened. ``page`` is the resource about this cause.

    ``confidence`` is in words (``98%``, ``not measured``); empty if the cause is unknown.
    """

    id: str
    title: str
    confidence: str
    explanation: str
    evidence: tuple[str, ...]
    remedy: tuple[str, ...]
    page: str


@dataclass(frozen=True)
class PlaceAnswer:
    """Ranks in one state with one top frame."""

    ranks: str
    state: str
    top_frame: str


@dataclass(frozen=True)
class IncidentAnswer:
    """One incident: the verdict, both lines, the cause and what to do. Long lists are cut; the totals count all entries."""

    id: str
    kind: str
    proven: bool
    severity: str
    summary: str
    culprit_ranks: str
    waiting_ranks: str
    operation: str | None
    where: str | None
    sides: tuple[SideAnswer, ...]
    cause: CauseAnswer | None
    other_causes: tuple[str, ...]
    proof: str | None
    waits: tuple[str, ...]
    waits_total: int
    places: tuple[PlaceAnswer, ...]
    places_total: int
    ranks_total: int
    job: str
    launcher: str
    world_size: int | None
    nodes: tuple[str, ...]
    command: str
    onset_at: str
    confirmed_at: str | None
    ended_at: str | None
    captured: tuple[str, ...]
    missing: tuple[str, ...]
    missing_total: int


@dataclass(frozen=True)
class WaitsAnswer:
    """Who waits for whom, a sentence each, and why it can never resolve, where that is proven."""

    incident: str
    culprit_ranks: str
    waiting_ranks: str
    proof: str | None
    waits: tuple[str, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True)
class RankLine:
    """One rank. ``progress``: its groups, six at most, unfinished ones first: sequence numbers last enqueued and completed."""

    rank: int
    name: str
    node: str
    pid: int
    state: str
    top_frame: str
    progress: tuple[str, ...]


@dataclass(frozen=True)
class RankPage:
    """Ranks of an incident or of a job, in ascending order. ``of``: its id."""

    of: str
    ranks: tuple[RankLine, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True)
class FrameAnswer:
    """One Python frame. ``variables`` are types and shapes of locals, never values."""

    function: str
    file: str
    line: int
    source: str | None
    variables: tuple[str, ...]


@dataclass(frozen=True)
class ThreadAnswer:
    """One thread, deepest frame first; ``frames_total`` counts those that were cut as well."""

    name: str
    is_main: bool
    active: bool
    frames: tuple[FrameAnswer, ...]
    frames_total: int


@dataclass(frozen=True)
class StackAnswer:
    """The stack of a process: of a rank at the time of an incident, or of a living process. The main thread is first."""

    rank: int
    pid: int
    node: str
    threads: tuple[ThreadAnswer, ...]
    threads_total: int


@dataclass(frozen=True)
class ComparedRanks:
    """Two ranks side by side. ``common_frames``: how many outermost frames they share; ``diverge_at``: the first that differ."""

    incident: str
    ranks: tuple[int, int]
    states: tuple[str, str]
    common_frames: int
    diverge_at: tuple[str, str]
    top_frames: tuple[str, str]
    progress: tuple[str, ...]


@dataclass(frozen=True)
class GroupLine:
    """How far a process group is. ``in_flight_s``: seconds without progress of the operation in flight, None if none is."""

    group: str
    front: int
    completed: int
    behind: str
    in_flight_s: float | None


@dataclass(frozen=True)
class JobLine:
    """One job on this node now. ``states``: ranks by state; ``groups``: the longest wait first; ``open_incident``: its id."""

    job: str
    launcher: str
    command: str
    world_size: int | None
    ranks_here: int
    states: tuple[str, ...]
    groups: tuple[GroupLine, ...]
    open_incident: str | None


@dataclass(frozen=True)
class JobPage:
    """Jobs on this node now. ``missing``: what could not be read, and the repair."""

    jobs: tuple[JobLine, ...]
    total: int
    next_offset: int | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class CheckAnswer:
    """One finding of doctor: ``ok``, ``warning`` or ``failed``, and the repair."""

    name: str
    state: str
    says: str
    repair: str


@dataclass(frozen=True)
class DoctorAnswer:
    """Whether hangwatch works on this machine: the problems, then the names of the checks that found none."""

    works: bool
    problems: tuple[CheckAnswer, ...]
    fine: tuple[str, ...]
