"""The incident document, schema ``hangwatch.incident/3``: the contract with users, dashboards and tests.

Schema 1 had no ``name``, ``world`` and ``world_rank`` of ranks, schema 2 no ``how`` of causes. Both can still be read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hangwatch.model.text import describe_job, title_job

SCHEMA = "hangwatch.incident/3"

Kind = Literal["deadlock", "stall", "rank_lost", "straggler", "slow", "failed", "silent_failure", "healthy"]
Severity = Literal["critical", "warning", "info"]

#: Kinds that ``--on-hang stop`` acts on and that ``diagnose`` and ``dump`` call a hang.
HANG_KINDS: frozenset[str] = frozenset({"deadlock", "stall", "rank_lost"})
#: The end of the ids of incidents that ``hangwatch dump`` has written; these are never ended.
DUMP_SUFFIX = "-dump"


class Evidence(msgspec.Struct, frozen=True):
    """One observation behind a cause: the rank it was made on (None: no single one), where, and what it says."""

    rank: int | None
    source: str
    says: str


#: What made ranks take different ways: a condition, an early ``return`` or ``continue``, a loop, a caught exception.
How = Literal["condition", "guard", "loop", "exception"]


class Cause(msgspec.Struct, frozen=True):
    """A hypothesis: an id of ``docs/causes``, how sure we are, why, and what to do.

    ``confidence`` (0..1): how often causes stated like this one were right on the catalogue's hangs. If none of these
    hangs has the cause, or the job does not hang (``measured`` is false), the confidence is unknown; ``certainty`` says
    so in words. ``how``: by what the ranks of ``ranks-diverged`` diverged, if the source shows it.
    """

    id: str
    title: str
    confidence: float
    explanation: str
    evidence: tuple[Evidence, ...] = ()
    remedy: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    measured: bool = True
    how: How | None = None

    @property
    def certainty(self) -> str:
        """How sure the cause is, for people: ``98%``, or ``not measured``; empty if the cause is unknown."""
        if self.id == "unknown":
            return ""
        return f"{self.confidence:.0%}" if self.measured else "not measured"


class SourceLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in code.

    ``source``: the line's text. ``via``: the library line that it went through, if that says more. ``ranks``: those
    seen on this side of the divergence.
    """

    file: str
    line: int
    function: str
    source: str | None = None
    via: str | None = None
    ranks: tuple[int, ...] = ()


class Divergence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the ranks diverged: the user's line on the culprits' side and on the others'.

    ``group`` and ``seq``: the first operation at which they differ, which may come before the pending one.
    """

    culprit: SourceLine | None
    others: SourceLine | None
    group: str | None = None
    seq: int | None = None
    culprit_op: str | None = None
    others_op: str | None = None

    @property
    def same_line(self) -> bool:
        """True if both sides are at one user line: then the library's line, ``via``, distinguishes them."""
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
    """What was found.

    ``proof`` and ``waits``: in words, why it can never resolve, and who waits for whom. ``culprits_from``: what named
    the culprits: ``waits``, the waits for each other; or ``cause``, if all wait for each other and only some took the
    branch or left the loop. ``names``: names of processes of other worlds than the job's own, by number.
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
    culprits_from: Literal["waits", "cause"] = "waits"


class RankGroup(msgspec.Struct, frozen=True):
    """How far a rank is in a group."""

    name: str
    enqueued: int
    completed: int


class RankEntry(msgspec.Struct, frozen=True):
    """One process in the document.

    ``stack``: the main thread, deepest first, ``function (file:line)``. ``rank``: its number in the job, used in
    lists of ranks. Of a process of another world than the job's own, ``name`` is its name in texts (``engine/0``),
    ``world`` the name of that world, ``world_rank`` its rank there (None if it has none). If there are other worlds,
    the job's own ranks have ``world`` too.
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
    """The job in the document. Texts are empty if not known.

    ``role``: what its own ranks do; empty if it has no processes of other worlds. ``name``: what its user calls it
    (``--job``, the Slurm job, the pod). ``script``: the program that its ranks run. ``user``, ``slurm_job``,
    ``namespace`` and ``pod`` say where to look for it.
    """

    id: str
    nodes: tuple[str, ...]
    world_size: int | None
    launcher: str
    command: str
    role: str = ""
    name: str = ""
    script: str = ""
    user: str = ""
    slurm_job: str = ""
    namespace: str = ""
    pod: str = ""

    @property
    def title(self) -> str:
        """The title for people: the job's name, else the file name of its script, else its id."""
        return title_job(self.id, self.name, self.script)

    @property
    def described(self) -> str:
        """Its launcher and size in words: ``torchrun, 2 ranks: trainer``."""
        return describe_job(self.launcher, self.world_size, self.role)


class PastHang(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier hang of the same job.

    ``step``: the training step that all ranks had reached; None if not known. ``nodes``: those of the culprits;
    ``spared``: the job had other nodes besides. ``place``: the culprits' line (``file:line``), empty if not seen.
    ``names``: names of culprits of other worlds, by number, in that run of the job.
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
    """The hangs of the job: this one (``now``), and those ``before`` it, oldest first.

    ``restarts``: how often this agent restarted the job before this hang. ``exclude_nodes``: nodes whose ranks were
    repeatedly the culprits, worth excluding. ``hangs``: how many there were, including this one; if many, the oldest
    are not in ``before``. Documents before 0.3 lack this count.
    """

    now: PastHang
    before: tuple[PastHang, ...] = ()
    restarts: int = 0
    exclude_nodes: tuple[str, ...] = ()
    hangs: int = 0

    @property
    def number(self) -> int:
        """The number of this hang among the hangs of the job, from 1."""
        return max(self.hangs, len(self.before) + 1)


class SecondLook(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a reported hang may be acted on: the captures since its report have to agree.

    ``until``: the earliest time of the action (RFC 3339); empty while it is called off. ``unless``: what would call it
    off, in words; empty if what was seen is no ground to act. ``called_off``: what called it off last. ``action``: what
    is to be done then, ``end the job``; empty if nothing is. ``passed``: the captures have agreed until then.
    """

    until: str
    unless: str
    action: str = ""
    called_off: str = ""
    passed: bool = False


#: Why a rank takes longer: it waits for a file, a pipe, a connection or its DataLoader; sleeps; waits for a lock or a thread of
#: its own; is throttled by its cgroup; waits for a free core; has more to compute.
SlowReason = Literal["input", "sleep", "lock", "throttled", "no_core", "gpu_clocks", "compute", "unknown"]


class Lateness(msgspec.Struct, frozen=True):
    """Who made the others wait while the job went on.

    ``rank``: None if no single rank did. ``lost``: the share of the time that this cost. ``late_s``: how much longer than its
    peers the rank took in a step. ``faster``: how much more the job would do without that, 0.25 for a quarter. ``waiting``: who
    waited. ``steps``: the newest ``steps`` of ``of_steps`` steps on record. ``says``: the same in words; empty if too little
    time is lost to speak of. ``reason``: why, if the rank was watched.
    """

    rank: int | None
    lost: float
    late_s: float
    faster: float
    waiting: tuple[int, ...]
    steps: int
    of_steps: int
    says: str
    reason: SlowReason = "unknown"


class Incident(msgspec.Struct, frozen=True):
    """The whole document. Times are RFC 3339 in UTC.

    ``onset_at``: when the oldest pending operation was enqueued. ``history`` and ``second_look``: only for hangs that an
    agent has reported. ``lateness``: only if the job did not hang and its records tell.
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
    second_look: SecondLook | None = None
    lateness: Lateness | None = None

    @property
    def may_be_acted_on(self) -> bool:
        """True if the job may be stopped for it: there is no second look, or the second look has passed."""
        return self.second_look is None or self.second_look.passed
