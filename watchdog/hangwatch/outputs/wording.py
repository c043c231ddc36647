"""Words that all outputs share: a verdict's kind, an incident's title, where the ranks diverged. Pure; may import the model
and ``sanitize``."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from hangwatch.model.incident import Cause, Divergence, Incident, RankEntry, SourceLine, Verdict
from hangwatch.model.live import LiveJob
from hangwatch.outputs.sanitize import excerpt

_KIND_NAMES = {
    "deadlock": "Deadlock",
    "stall": "Stall",
    "rank_lost": "Rank lost",
    "straggler": "Straggler",
    "slow": "Slow",
    "failed": "Failed",
    "silent_failure": "Silent failure",
    "healthy": "Healthy",
}
#: Of an explanation, where there is little room.
_WHY_CHARS = 240
#: On more nodes than these, the table of ranks says where each is.
_NODES_NAMED = 3
#: What is seen, not inferred: there is nothing to prove.
_SEEN = frozenset({"slow", "failed", "silent_failure", "healthy"})


def name_kind(kind: str) -> str:
    """Return the display name of a verdict's kind."""
    return _KIND_NAMES.get(kind, kind.replace("_", " "))


def duration(seconds: float) -> str:
    """Return ``0.4 s``, ``34 s``, ``5 min 3 s``, ``2 min`` or ``2 h 4 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def describe_stall_timeout(job: LiveJob) -> str:
    """Return after how long a stall of a job would be reported now, and why that long; empty if no agent has told."""
    why = f" ({job.stall_why})" if job.stall_why else ""
    return f"{duration(job.stall_after_s)}{why}" if job.stall_after_s is not None else ""


def describe_proof(verdict: Verdict) -> str:
    """Return whether a hang is proven, in words; empty if there is nothing to prove."""
    return "" if verdict.kind in _SEEN else "proven" if verdict.proven else "not proven"


def mark_culprit(verdict: Verdict) -> str:
    """Return the word that marks a culprit among the ranks: one that makes the others late has stopped nobody."""
    return "late" if verdict.kind == "slow" else "culprit"


def says_cause(verdict: Verdict, cause: Cause) -> bool:
    """True if the summary has the cause's title in it, as most have, or says the same in other words."""
    return verdict.kind == "slow" or cause.title.lower() in verdict.summary.lower()


def say_confidence(cause: Cause, form: str = ", confidence {}") -> str:
    """Return how sure a cause is, in this form; empty if it is unknown."""
    return form.format(cause.certainty) if cause.certainty else ""


def describe_cause(verdict: Verdict, cause: Cause) -> str:
    """Return in one line what happened, and how sure that is: the first sentence of the explanation.

    The cause's title comes first, unless the summary says the same.
    """
    why, _, _ = cause.explanation.partition(". ")
    title = "" if why and says_cause(verdict, cause) else cause.title
    text = ". ".join(part for part in (title, excerpt(why, _WHY_CHARS)) if part)
    return text.removesuffix(".") + say_confidence(cause, " (confidence {})")


def title_of(incident: Incident) -> str:
    """Return the title of a document about an incident."""
    return f"{name_kind(incident.verdict.kind)}: {incident.job.title[:80]}"


def name_nodes(incident: Incident, ranks: Collection[int]) -> str:
    """Return the nodes of some ranks as `` on node7``; empty if they are not known, or too many to be named."""
    wanted = frozenset(ranks)
    nodes = sorted({entry.node for entry in incident.ranks if entry.rank in wanted and entry.node})
    return f" on {', '.join(nodes)}" if 0 < len(nodes) <= _NODES_NAMED else ""


class ShownSide(msgspec.Struct, frozen=True):
    """One side: its name (``culprit``, ``waiting``), its ranks, the user's line (None if not captured), the operation."""

    name: str
    ranks: tuple[int, ...]
    line: SourceLine | None
    op: str | None


class ShownDivergence(msgspec.Struct, frozen=True):
    """The title and the sides: the culprits' first; the waiting ranks alone if there is no culprit."""

    title: str
    sides: tuple[ShownSide, ...]


def show_divergence(divergence: Divergence, verdict: Verdict) -> ShownDivergence:
    """Return how a verdict's divergence is shown."""
    if verdict.kind == "slow":
        line = divergence.culprit
        name, usual = ("culprit", "the others") if verdict.culprit_ranks else ("example", "before")
        side = ShownSide(name, line.ranks if line is not None else (), line, None)
        return ShownDivergence(f"Where it spends more of its time than {usual}", (side,))
    if not verdict.culprit_ranks:
        # Without a culprit there is no divergence to show, only where the ranks wait.
        line = divergence.others or divergence.culprit
        ranks = line.ranks if line is not None else ()
        return ShownDivergence(
            "Where the ranks wait", (ShownSide("waiting", tuple(ranks), line, divergence.others_op),)
        )
    if divergence.others is None and not verdict.waiting_ranks:
        line = divergence.culprit
        ranks = line.ranks if line is not None else verdict.culprit_ranks
        return ShownDivergence(
            "Where the ranks are stuck", (ShownSide("culprit", tuple(ranks), line, divergence.culprit_op),)
        )
    where = f" in {divergence.group}" if divergence.group is not None else ""
    number = f", first at sequence number {divergence.seq}" if divergence.seq is not None else ""
    others = tuple(sorted(set(verdict.waiting_ranks) - set(verdict.culprit_ranks)))
    # In a tie or a cycle all ranks are culprits: calling one side the culprit would be a guess.
    names = ("culprit", "others") if others else ("one side", "other side")
    left = divergence.culprit.ranks if divergence.culprit is not None else ()
    right = divergence.others.ranks if divergence.others is not None else ()
    left = left or (verdict.culprit_ranks if others else ())
    return ShownDivergence(
        f"Where the ranks diverged{where}{number}",
        (
            ShownSide(names[0], tuple(left), divergence.culprit, divergence.culprit_op),
            ShownSide(names[1], tuple(right or others), divergence.others, divergence.others_op),
        ),
    )


class Place(msgspec.Struct, frozen=True):
    """Ranks in one state at one frame; ``top`` is empty where no Python frame was seen."""

    ranks: tuple[int, ...]
    state: str
    top: str


def group_places(entries: Iterable[RankEntry]) -> tuple[Place, ...]:
    """Return the ranks by state and top frame, smallest set first.

    Small sets are usually the interesting ones.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        found.setdefault((entry.state, entry.stack[0] if entry.stack else ""), []).append(entry.rank)
    places = (Place(tuple(ranks), state, top) for (state, top), ranks in found.items())
    return tuple(sorted(places, key=lambda place: (len(place.ranks), place.ranks[0])))
