"""One incident as an answer: small whatever the size of the job. Pure."""

from __future__ import annotations

from hangwatch.assistant.answers import CauseAnswer, IncidentAnswer, PlaceAnswer, SideAnswer
from hangwatch.assistant.paging import line, lines, ranks
from hangwatch.model.incident import Cause, Collective, Incident
from hangwatch.model.numbers import name_guests
from hangwatch.outputs.wording import ShownSide, group_places, show_divergence

#: Resources with the pages of the causes.
CAUSES = "hangwatch://causes"
_ITEMS = 10


def describe_incident(incident: Incident) -> IncidentAnswer:
    """Return the verdict, both lines, the cause and what to do; long lists are cut, with their lengths."""
    verdict, job = incident.verdict, incident.job
    shown = show_divergence(verdict.divergence, verdict) if verdict.divergence is not None else None
    places = group_places(incident.ranks)

    def named(numbers: tuple[int, ...]) -> str:
        return name_guests(ranks(numbers), verdict.names)

    return IncidentAnswer(
        id=incident.id,
        kind=verdict.kind,
        proven=verdict.proven,
        severity=verdict.severity,
        summary=line(verdict.summary),
        culprit_ranks=named(verdict.culprit_ranks),
        waiting_ranks=named(verdict.waiting_ranks),
        operation=_operation(verdict.collective) if verdict.collective is not None else None,
        where=line(shown.title) if shown is not None else None,
        sides=tuple(_side(side, named(side.ranks)) for side in shown.sides) if shown is not None else (),
        cause=_cause(verdict.cause) if verdict.cause is not None else None,
        other_causes=lines(f"{c.id}: {c.title}" for c in verdict.alternatives[:_ITEMS]),
        proof=line(verdict.proof) if verdict.proof else None,
        waits=lines(verdict.waits[:_ITEMS]),
        waits_total=len(verdict.waits),
        places=tuple(PlaceAnswer(named(p.ranks), line(p.state), line(p.top)) for p in places[:_ITEMS]),
        places_total=len(places),
        ranks_total=len(incident.ranks),
        job=line(job.id),
        launcher=line(job.launcher),
        world_size=job.world_size,
        nodes=lines(job.nodes[:_ITEMS]),
        command=line(job.command),
        onset_at=line(incident.onset_at),
        confirmed_at=incident.confirmed_at,
        ended_at=incident.ended_at,
        captured=tuple(name for name, was in incident.captured.items() if was),
        missing=lines(incident.missing[:_ITEMS]),
        missing_total=len(incident.missing),
    )


def _operation(collective: Collective) -> str:
    number = f", sequence number {collective.seq}" if collective.seq is not None else ""
    return line(f"{collective.op} in {collective.group} of ranks {ranks(collective.group_ranks)}{number}")


def _side(side: ShownSide, numbers: str) -> SideAnswer:
    where = side.line
    return SideAnswer(
        name=side.name,
        ranks=numbers,
        operation=line(side.op) if side.op is not None else None,
        file=line(where.file) if where is not None else None,
        line=where.line if where is not None else None,
        function=line(where.function) if where is not None else None,
        source=line(where.source) if where is not None and where.source is not None else None,
        via=line(where.via) if where is not None and where.via is not None else None,
    )


def _cause(cause: Cause) -> CauseAnswer:
    evidence = (
        f"rank {e.rank}, {e.source}: {e.says}" if e.rank is not None else f"{e.source}: {e.says}"
        for e in cause.evidence
    )
    return CauseAnswer(
        id=cause.id,
        title=line(cause.title),
        confidence=cause.certainty,
        explanation=line(cause.explanation),
        evidence=lines(evidence)[:_ITEMS],
        remedy=lines(cause.remedy),
        page=f"{CAUSES}/{cause.id}",
    )
