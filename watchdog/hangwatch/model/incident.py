"""The incident document, schema ``hangwatch.incident/2``: the contract with users, dashboards and tests.

Schema 1 is the same without ``name``, ``world`` and ``world_rank`` of ranks; its documents are read as they are.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hangwatch.model.text import describe_job

SCHEMA = "hangwatch.incident/2"

Kind = Literal["deadlock", "stall", "rank_lost", "straggler", "silent_failure", "healthy"]
Severity = Literal["critical", "warning", "info"]

#: Kinds that ``--on-hang stop`` acts on and that ``diagnose`` and ``dump`` call a hang.
HANG_KINDS: frozenset[str] = frozenset({"deadlock", "stall", "rank_lost"})
#: How the id of an incident ends that ``hangwatch dump`` has written: a picture of a moment, which is never ended.
DUMP_SUFFIX = "-dump"


class Evidence(msgspec.Struct, frozen=True):
    """One observation behind a cause: the rank it was made on (None: no single one), where, and what it says."""

    rank: int | None
    source: str
    says: str


class Cause(msgspec.Struct, frozen=True):
    """A hypothesis: an id of ``docs/causes``, how sure we are, why, and what to do.

    ``confidence`` (0..1): how often causes stated like this one were right on the catalogue's hangs. Of a cause that none of
    these hangs has (``measured`` is false) nobody knows: people read ``certainty``, which says so in words.
    """

    id: str
    title: str
    confidence: float
    explanation: str
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    measured: bool = True

    @property
    def certainty(self) -> str:
        """How sure it is, for people: ``98%``, or ``not measured``."""
        return f"{self.confidence:.0%}" if self.measured else "not measured"


class SourceLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in code. ``source`` is the line's text; ``via`` the library line it went through, where that says more.

    ``ranks`` are those seen on this side of the divergence.
    """

    file: str
    line: int
    function: str
    source: str | None = None
    via: str | None = None
    ranks: tuple[int, ...] = ()


class Divergence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the ranks diverged: the user's line on the culprits' side and on the others'.

    ``group`` and ``seq`` name the first operation at which they differ, which may come before the pending one.
    """

    culprit: SourceLine | None
    others: SourceLine | None
    group: str | None = None
    seq: int | None = None
    culprit_op: str | None = None
    others_op: str | None = None

    @property
    def same_line(self) -> bool:
        """Whether both sides are at one line of the user's: what distinguishes them then is the library's line, ``via``."""
        one, other = self.culprit, self.others
        return one is not None and other is not None and (one.file, one.line) == (other.file, other.line)


class Collective(msgspec.Struct, frozen=True):
    """The operation the waiting ranks are stuck in."""

    op: str
    group: str
    group_ranks: tuple[int, ...]
    seq: int | None
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """What was found. ``proof`` and ``waits`` say in words why it can never resolve, and who waits for whom.

    ``names``: what processes of other worlds than the job's own are called, by number.
    """

    kind: Kind
    proven: bool
    severity: Severity
    summary: str
    collective: Collective | None = None
    culprit_ranks: tuple[int, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    divergence: Divergence | None = None
    cause: Cause | None = None
    alternatives: tuple[Cause, ...] = ()
    proof: str | None = None
    waits: tuple[str, ...] = ()
    names: dict[int, str] = {}


class RankGroup(msgspec.Struct, frozen=True):
    """How far a rank is in a group."""

    name: str
    enqueued: int
    completed: int


class RankEntry(msgspec.Struct, frozen=True):
    """One process in the document. ``stack`` is the main thread, deepest first, ``function (file:line)``.

    ``rank`` is its number in the job, by which lists of ranks name it. Of a process of another world than the job's own, ``name``
    is what texts call it (``engine/0``), ``world`` the name of that world, ``world_rank`` its rank there, None where it has none.
    The job's own ranks have ``world`` too where there are others.
    """

    rank: int
    node: str
    pid: int
    state: str
    groups: tuple[RankGroup, ...]
    stack: tuple[str, ...]
    name: str = ""
    world: str = ""
    world_rank: int | None = None


class JobEntry(msgspec.Struct, frozen=True):
    """The job in the document. ``role``: what its own ranks do, empty where it has no processes of other worlds."""

    id: str
    nodes: tuple[str, ...]
    world_size: int | None
    launcher: str
    command: str
    role: str = ""

    @property
    def described(self) -> str:
        """Its launcher and size in words, ``torchrun, 2 ranks: trainer``."""
        return describe_job(self.launcher, self.world_size, self.role)


class PastHang(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier hang of the same job. ``step``: the training step that all ranks had reached, None where none was known.

    ``nodes`` are those of the culprits, ``spared`` says that the job had others besides; ``place`` is the culprits' line
    (``file:line``), empty where it was not seen.
    ``names``: those of culprits of other worlds, by number; they are of that run of the job.
    """

    id: str
    kind: Kind
    proven: bool
    step: int | None = None
    culprit_ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    spared: bool = False
    place: str = ""
    names: dict[int, str] = {}


class JobHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hangs of the job: this one (``now``), and those ``before`` it, the oldest first.

    ``restarts``: how often this agent has restarted the job before this hang. ``exclude_nodes``: nodes whose ranks were the
    culprits again and again, and which are worth leaving out. ``hangs``: how many there were, this one included; of many the
    oldest are not among ``before``. Documents before 0.3 have no such count.
    """

    now: PastHang
    before: tuple[PastHang, ...] = ()
    restarts: int = 0
    exclude_nodes: tuple[str, ...] = ()
    hangs: int = 0

    @property
    def number(self) -> int:
        """Which hang of the job this one is, from 1."""
        return max(self.hangs, len(self.before) + 1)


class Incident(msgspec.Struct, frozen=True):
    """The whole document. Times are RFC 3339 in UTC; ``onset_at`` is when the oldest pending operation was enqueued.

    ``history`` is there for hangs that an agent has reported.
    """

    id: str
    job: JobEntry
    onset_at: str
    detected_at: str
    confirmed_at: str | None
    ended_at: str | None
    verdict: Verdict
    ranks: tuple[RankEntry, ...]
    captured: dict[str, bool]
    missing: tuple[str, ...]
    schema: str = SCHEMA
    history: JobHistory | None = None
