"""Answers from what is stored: incidents, their ranks and stacks, and two ranks side by side. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hangwatch.analysis.places import diverging_frames
from hangwatch.assistant.answers import (
    ComparedRanks,
    IncidentLine,
    IncidentPage,
    RankLine,
    RankPage,
    StackAnswer,
    WaitsAnswer,
)
from hangwatch.assistant.paging import groups_first, label, line, lines, page, ranks
from hangwatch.assistant.stacks import describe_frame, describe_sample
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.errors import UserError
from hangwatch.model.incident import Incident, RankEntry
from hangwatch.model.numbers import name_guests
from hangwatch.model.stacks import Frame
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import read_bundle, read_document
from hangwatch.outputs.bundle.find import find_incident


def list_incidents(state_dir: Path, job: str, offset: int, limit: int) -> IncidentPage:
    """Return all incidents of the state directory, or those of one job."""
    listed = [one for one in Archive(state_dir).list() if not job or one.job == job]
    shown, following = page(listed, offset, limit)
    return IncidentPage(
        incidents=tuple(
            IncidentLine(
                id=one.id,
                job=line(one.job),
                kind=one.kind,
                proven=one.proven,
                severity=one.severity,
                summary=line(one.summary),
                culprit_ranks=name_guests(ranks(one.culprit_ranks), one.names),
                onset_at=line(one.onset_at),
                ended_at=one.ended_at,
                open=one.open,
            )
            for one in shown
        ),
        total=len(listed),
        next_offset=following,
    )


def read_incident(state_dir: Path, wanted: str) -> Incident:
    """Return the document of a stored incident by its id, or of the ``latest``. Raises ``BundleError``."""
    return read_document(find_incident(state_dir, wanted))


def read_whole(state_dir: Path, wanted: str) -> tuple[Incident, Capture]:
    """Return document and capture of a stored incident; a large job's capture has tens of megabytes."""
    found = find_incident(state_dir, wanted)
    return read_document(found), read_bundle(found)[1]


def who_waits(incident: Incident, offset: int, limit: int) -> WaitsAnswer:
    """Return the edges of the wait-for graph, in words."""
    verdict = incident.verdict
    shown, following = page(verdict.waits, offset, limit)
    return WaitsAnswer(
        incident=incident.id,
        culprit_ranks=name_guests(ranks(verdict.culprit_ranks), verdict.names),
        waiting_ranks=name_guests(ranks(verdict.waiting_ranks), verdict.names),
        proof=line(verdict.proof) if verdict.proof else None,
        waits=lines(shown),
        total=len(verdict.waits),
        next_offset=following,
    )


def list_ranks(incident: Incident, offset: int, limit: int) -> RankPage:
    """Return the ranks of an incident."""
    entries = sorted(incident.ranks, key=lambda one: one.rank)
    shown, following = page(entries, offset, limit)
    return RankPage(incident.id, tuple(_rank(one) for one in shown), len(entries), following)


def _rank(entry: RankEntry) -> RankLine:
    shown = groups_first(entry.groups, lambda one: one.enqueued != one.completed)
    progress = (f"{label(one.name)}: enqueued {one.enqueued}, completed {one.completed}" for one in shown)
    top = line(entry.stack[0]) if entry.stack else ""
    return RankLine(entry.rank, line(entry.name), line(entry.node), entry.pid, line(entry.state), top, lines(progress))


def stack_of_rank(incident: Incident, capture: Capture, rank: int) -> StackAnswer:
    """Return the stack that was captured of a rank. Raises ``UserError`` if there is none."""
    seen = _find_rank(incident, capture, rank)
    if not seen.stacks:
        raise UserError(f"no stack of rank {rank} was captured; the incident's missing says why")
    return describe_sample(seen.stacks[-1], seen.identity)


def compare_ranks(incident: Incident, capture: Capture, one: int, other: int) -> ComparedRanks:
    """Return where two ranks' main threads diverge, outermost frame first, and how far each is in its groups."""
    entries = {entry.rank: entry for entry in incident.ranks}
    sides = tuple(_frames(_find_rank(incident, capture, rank)) for rank in (one, other))
    first, second = diverging_frames(*sides)
    states = tuple(line(entries[rank].state) if rank in entries else "unknown" for rank in (one, other))
    groups = {rank: {g.name: g for g in entries[rank].groups} if rank in entries else {} for rank in (one, other)}
    shared = [(groups[one][name], groups[other][name]) for name in groups[one] if name in groups[other]]
    progress = (
        f"{label(ours.name)}: rank {one} enqueued {ours.enqueued}, completed {ours.completed}; "
        f"rank {other} enqueued {theirs.enqueued}, completed {theirs.completed}"
        for ours, theirs in groups_first(shared, lambda pair: any(side.enqueued != side.completed for side in pair))
    )
    return ComparedRanks(
        incident=incident.id,
        ranks=(one, other),
        states=(states[0], states[1]),
        common_frames=_common(*sides),
        diverge_at=(_where(first), _where(second)),
        top_frames=(_where(sides[0][0] if sides[0] else None), _where(sides[1][0] if sides[1] else None)),
        progress=lines(progress),
    )


def _find_rank(incident: Incident, capture: Capture, rank: int) -> RankCapture:
    for seen in capture.ranks:
        if seen.rank == rank:
            return seen
    there = ranks(seen.rank for seen in capture.ranks)
    raise UserError(f"the bundle of {incident.id} has no rank {rank}; it has {there}")


def _frames(seen: RankCapture) -> Sequence[Frame]:
    return seen.stacks[-1].main_frames if seen.stacks else ()


def _common(ours: Sequence[Frame], theirs: Sequence[Frame]) -> int:
    """Return how many of the outermost frames are the same."""
    count = 0
    for left, right in zip(reversed(ours), reversed(theirs), strict=False):
        if (left.file, left.function, left.line) != (right.file, right.function, right.line):
            break
        count += 1
    return count


def _where(frame: Frame | None) -> str:
    if frame is None:
        return "no further frame"
    shown = describe_frame(frame)
    return f"{shown.function} ({shown.file}:{shown.line})" + (f": {shown.source}" if shown.source else "")
