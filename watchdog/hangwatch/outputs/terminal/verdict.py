"""The verdict for a terminal: what happened, where, why and what to do, in ten to fifteen lines; all else with ``verbose``.

May import the model and the other outputs' helpers. It is rendered from the incident document only, so live and stored incidents
look the same on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from hangwatch.model.incident import Cause, Collective, Divergence, Incident, SourceLine, Verdict
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import format_ranks, short_path
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.sanitize import excerpt
from hangwatch.outputs.second_look import describe_second_look
from hangwatch.outputs.terminal.console import Console, Line, Span
from hangwatch.outputs.terminal.layout import paragraph, say
from hangwatch.outputs.wording import (
    ShownSide,
    describe_cause,
    describe_proof,
    name_kind,
    name_nodes,
    say_confidence,
    show_divergence,
)

#: Longer lines of prose are hard to read.
_MAX_WIDTH = 120
_KIND_STYLE = {"critical": "bold red", "warning": "bold yellow", "info": "bold green"}
#: The culprits' side, and the others'.
_SIDE_STYLES = ("bold red", "bold cyan")
_INDENT = 2
#: Longer lists are truncated; incident.json has all items.
_MAX_ITEMS = 12
#: Characters of a line of code in the short verdict: two lines of a terminal.
_MAX_CODE = 150
_EMPTY: Line = ()


def print_verdict(
    incident: Incident, console: Console, *, bundle: Path | None = None, page: str = "", verbose: bool = False
) -> None:
    """Print the verdict to ``console``.

    ``bundle``: the incident's directory, None if it is not stored. ``page``: where the agent's page shows it, empty if there is
    none. Text from the job is shown without control characters.
    """
    text = _VerdictText(incident, min(console.width, _MAX_WIDTH), bundle, page)
    console.print(text.whole() if verbose else text.short())


def describe_verdict(verdict: Verdict) -> Span:
    """Return the kind of a verdict and whether it is proven, ``DEADLOCK, proven``."""
    words = name_kind(verdict.kind).upper()
    proof = describe_proof(verdict)
    return Span(f"{words}, {proof}" if proof else words, _KIND_STYLE[verdict.severity])


class _VerdictText:
    """Renders one verdict as lines of at most ``width`` characters."""

    def __init__(self, incident: Incident, width: int, bundle: Path | None, page: str) -> None:
        self.incident = incident
        self.verdict = incident.verdict
        self.width = width
        self.bundle = bundle
        self.page = page
        self.names: Mapping[int, str] = incident.verdict.names

    def short(self) -> Iterator[Line]:
        """Yield what to know now, each fact once."""
        verdict = self.verdict
        yield from self.head(self.incident.job.title)
        yield from self.summary()
        if verdict.divergence is not None or verdict.collective is not None:
            yield _EMPTY
        if verdict.divergence is not None:
            yield from self.sides(verdict.divergence)
        elif verdict.collective is not None:
            yield from self.paragraph(self.operation(verdict.collective), indent=_INDENT)
        yield _EMPTY
        if verdict.cause is not None:
            cause = verdict.cause
            yield from self.field("Cause", describe_cause(verdict, cause))
            if cause.remedy:
                yield from self.field("To do", cause.remedy[0])
            yield from self.field("More", f"hangwatch explain {cause.id}")
        if not self.incident.may_be_acted_on and (action := describe_second_look(self.incident)):
            yield from self.field("Action", action)
        if missing := self.decisive_gaps():
            several = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            yield from self.field("Not seen", f"{missing[0]}{several}")
        if self.page:
            yield from self.field("Page", self.page)
        yield from self.stored()

    def summary(self) -> Iterator[Line]:
        yield from self.paragraph(self.verdict.summary, style="bold")
        for line in describe_history(self.incident.history):
            yield from self.paragraph(line)
        lateness = self.incident.lateness
        if lateness is not None and lateness.says and lateness.says != self.verdict.summary:
            yield from self.paragraph(lateness.says)

    def decisive_gaps(self) -> Sequence[str]:
        """Return the gaps that may explain why no cause was found.

        Gaps of stacks are always among them, because granting a permission repairs them.
        """
        verdict = self.verdict
        if verdict.kind != "healthy" and (verdict.cause is None or verdict.cause.id == "unknown"):
            return self.incident.missing
        return [one for one in self.incident.missing if one.startswith("stacks")]

    def whole(self) -> Iterator[Line]:
        """Yield all that the document says, except the ranks' stacks."""
        verdict, job = self.verdict, self.incident.job
        yield from self.head(f"{job.title}, job {job.id}" if job.title != job.id else job.id)
        yield from self.summary()
        yield from self.paragraph(self.when())
        yield from self.listing("Why it can never resolve", [verdict.proof] if verdict.proof else [], mark="")
        yield from self.listing("Who waits for whom", verdict.waits, mark="")
        if verdict.collective is not None:
            yield from self.title("Operation")
            yield from self.paragraph(self.operation(verdict.collective), indent=_INDENT)
        if verdict.divergence is not None:
            yield from self.title(show_divergence(verdict.divergence, verdict).title)
            yield from self.sides(verdict.divergence)
        if verdict.cause is not None:
            yield from self.cause(verdict.cause)
        if action := describe_second_look(self.incident):
            yield from self.title("Action")
            yield from self.paragraph(action, indent=_INDENT)
        yield from self.listing("Other possible causes", [_describe_cause(cause) for cause in verdict.alternatives])
        yield from self.listing("Missing data", self.incident.missing)
        if self.bundle is not None or self.page:
            yield _EMPTY
        if self.page:
            yield from self.field("Page", self.page)
        yield from self.stored()

    def head(self, named: str) -> list[Line]:
        job = self.incident.job
        where = f" on {', '.join(job.nodes)}" if job.nodes else ""
        return paragraph(f": {named} ({job.described}){where}", self.width, label=describe_verdict(self.verdict))

    def when(self) -> str:
        incident = self.incident
        confirmed = f", confirmed {incident.confirmed_at}" if incident.confirmed_at is not None else ""
        ended = f", ended {incident.ended_at}" if incident.ended_at is not None else ""
        return f"since {incident.onset_at}{confirmed}{ended}"

    def paragraph(self, text: str, *, indent: int = 0, mark: str = "", style: str = "") -> list[Line]:
        return paragraph(text, self.width, indent=indent, mark=Span(mark), style=style)

    def field(self, name: str, text: str) -> list[Line]:
        """Return ``Cause It is so``; further lines are aligned with the text."""
        return paragraph(text, self.width, mark=Span(f"{name:9} ", "bold"))

    def title(self, text: str) -> Iterator[Line]:
        yield _EMPTY
        yield from self.paragraph(text, style="bold")

    def listing(self, title: str, items: Sequence[str], *, mark: str = "- ") -> Iterator[Line]:
        if not items:
            return
        yield from self.title(title)
        for item in items[:_MAX_ITEMS]:
            yield from self.paragraph(item, indent=_INDENT, mark=mark)
        if len(items) > _MAX_ITEMS:
            where = "in incident.json" if self.bundle is not None else "with --json"
            yield from self.paragraph(f"and {len(items) - _MAX_ITEMS} more {where}", indent=_INDENT, mark=mark)

    def operation(self, collective: Collective) -> str:
        number = f", sequence number {collective.seq}" if collective.seq is not None else ""
        ranks = f" of {self.ranks(collective.group_ranks)}" if collective.group_ranks else ""
        kinds = f" of {', '.join(collective.dtypes)}" if collective.dtypes else ""
        shapes = ", ".join(str(list(size)) for size in collective.sizes)
        tensors = f", tensors {shapes}{kinds}" if collective.sizes else ""
        return f"{collective.op} in {collective.group}{ranks}{number}{tensors}"

    def ranks(self, ranks: Collection[int]) -> str:
        return name_guests(f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}", self.names)

    def sides(self, divergence: Divergence) -> Iterator[Line]:
        """Yield each side: who, at which line, in which operation; below it the line's text."""
        sides = show_divergence(divergence, self.verdict).sides
        styles = _SIDE_STYLES if len(sides) > 1 else _SIDE_STYLES[1:]
        via_style = "bold" if divergence.same_line else "dim"
        for side, style in zip(sides, styles, strict=True):
            yield from self.side(side, style, via_style)

    def side(self, side: ShownSide, style: str, via_style: str) -> Iterator[Line]:
        where = name_nodes(self.incident, side.ranks) if len(self.incident.job.nodes) > 1 else ""
        who = f"{side.name}, {self.ranks(side.ranks)}{where}" if side.ranks else side.name
        line = side.line
        place = _describe_place(line) if line is not None else "no line of the program seen"
        operation = f", in {side.op}" if side.op is not None else ""
        yield from paragraph(f": {place}{operation}", self.width, indent=_INDENT, label=Span(who, style))
        if line is None:
            return
        if line.source is not None:
            yield from self.paragraph(excerpt(line.source, _MAX_CODE), indent=2 * _INDENT, mark="> ", style="bold")
        if line.via is not None:
            yield from self.paragraph(f"via {line.via}", indent=3 * _INDENT, style=via_style)

    def cause(self, cause: Cause) -> Iterator[Line]:
        yield from self.title(f"Cause: {cause.title}")
        yield from self.paragraph(f"{cause.id}{say_confidence(cause)}", indent=_INDENT, style="dim")
        yield from self.paragraph(cause.explanation, indent=_INDENT)
        if cause.evidence:
            yield from self.title("Evidence")
        for item in cause.evidence:
            who = f"{self.ranks((item.rank,))}, " if item.rank is not None else ""
            label = Span(f"{who}{item.source}: ", "cyan")
            yield from paragraph(item.says, self.width, indent=_INDENT, mark=Span("- "), label=label)
        if cause.remedy:
            yield from self.title("What to do")
        for number, step in enumerate(cause.remedy, 1):
            yield from self.paragraph(step, indent=_INDENT, mark=f"{number}. ")
        yield from self.listing("See also", [*cause.references, f"hangwatch explain {cause.id}"])

    def stored(self) -> Iterator[Line]:
        if self.bundle is not None:
            yield (Span(f"{'Bundle':9} ", "bold"), *say(str(self.bundle)))  # never broken, so that it can be copied


def _describe_place(line: SourceLine) -> str:
    return f"{short_path(line.file)}:{line.line} in {line.function}"


def _describe_cause(cause: Cause) -> str:
    named = f"{cause.title} ({cause.id})"
    return f"{named}. {cause.explanation}" if cause.explanation else named
