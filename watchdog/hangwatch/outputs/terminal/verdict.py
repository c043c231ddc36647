"""The verdict for a terminal. May import the model, rich and the other outputs' helpers.

It is rendered from the incident document only, so live and stored incidents look the same on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hangwatch.model.incident import Cause, Collective, Divergence, Incident, Verdict
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import format_ranks, short_path
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.terminal.layout import beside, emit, hang, say
from hangwatch.outputs.wording import ShownSide, show_divergence

#: Minimum width for two columns of code side by side.
_SIDE_BY_SIDE_WIDTH = 76
#: Longer lines of prose are hard to read.
_MAX_WIDTH = 120
_KIND_STYLE = {"critical": "bold red", "warning": "bold yellow", "info": "bold green"}
#: The culprits' side, and the others'.
_SIDE_STYLES = ("bold red", "bold cyan")
_INDENT = 2
#: Longer lists are truncated; incident.json has all items.
_MAX_ITEMS = 12


def print_verdict(incident: Incident, console: Console, *, bundle: Path | None = None) -> None:
    """Print the verdict to ``console``; ``bundle`` is the incident's directory, named at the end.

    The console decides about colour (none if it is no terminal or NO_COLOR is set). Text from the job is shown without
    control characters and never interpreted as markup.
    """
    emit(console, _VerdictText(console, bundle).lines(incident))


class _VerdictText:
    """Renders one verdict for the width of a console. ``bundle``: the directory of the incident, None if it is not stored."""

    def __init__(self, console: Console, bundle: Path | None) -> None:
        self.console = console
        self.bundle = bundle
        self.width = min(console.width, _MAX_WIDTH)
        self.page: list[Text] = []
        self.names: Mapping[int, str] = {}

    def lines(self, incident: Incident) -> list[Text]:
        verdict = incident.verdict
        self.names = incident.verdict.names
        self.head(incident)
        self.listing("Why it can never resolve", [verdict.proof] if verdict.proof else [], mark="")
        self.listing("Who waits for whom", list(verdict.waits), mark="")
        if verdict.collective is not None:
            self.title("Operation")
            self.operation(verdict.collective)
        if verdict.divergence is not None:
            self.divergence(verdict.divergence, verdict)
        if verdict.cause is not None:
            self.cause(verdict.cause)
        self.alternatives(verdict.alternatives)
        self.listing("Missing data", list(incident.missing))
        if self.bundle is not None:
            self.page += [Text(), Text.assemble(("Bundle ", "bold"), say(str(self.bundle)))]
        return self.page

    def head(self, incident: Incident) -> None:
        verdict = incident.verdict
        words = verdict.kind.replace("_", " ").upper()
        if verdict.kind != "healthy":
            words += ", proven" if verdict.proven else ", not proven"
        self.page.append(say(words, _KIND_STYLE[verdict.severity]))
        self.add(say(verdict.summary, "bold"), indent=0)
        for line in describe_history(incident.history):
            self.add(say(line), indent=0)
        self.page.append(Text())
        job = incident.job
        where = f" on {', '.join(job.nodes)}" if job.nodes else ""
        self.add(say(f"job {job.id} ({job.described}){where}"), indent=0)
        when = f"since {incident.onset_at}"
        if incident.confirmed_at is not None:
            when += f", confirmed {incident.confirmed_at}"
        if incident.ended_at is not None:
            when += f", ended {incident.ended_at}"
        self.add(say(when), indent=0)

    def add(self, text: Text, *, indent: int = _INDENT, mark: str = "") -> None:
        self.page += hang(self.console, text, self.width, indent=indent, mark=mark)

    def title(self, text: str) -> None:
        self.page += [Text(), *hang(self.console, say(text, "bold"), self.width)]

    def listing(self, title: str, items: list[str], *, mark: str = "- ") -> None:
        if not items:
            return
        self.title(title)
        for item in items[:_MAX_ITEMS]:
            self.add(say(item), mark=mark)
        if len(items) > _MAX_ITEMS:
            where = "in incident.json" if self.bundle is not None else "with --format json"
            self.add(say(f"and {len(items) - _MAX_ITEMS} more {where}"), mark=mark)

    def operation(self, collective: Collective) -> None:
        number = f", sequence number {collective.seq}" if collective.seq is not None else ""
        ranks = f" of {self.ranks(collective.group_ranks)}" if collective.group_ranks else ""
        self.add(say(f"{collective.op} in {collective.group}{ranks}{number}"))
        if collective.sizes:
            kinds = f" of {', '.join(collective.dtypes)}" if collective.dtypes else ""
            shapes = ", ".join(str(list(size)) for size in collective.sizes)
            self.add(say(f"tensors {shapes}{kinds}"))

    def divergence(self, divergence: Divergence, verdict: Verdict) -> None:
        shown = show_divergence(divergence, verdict)
        self.title(shown.title)
        via_style = "bold" if divergence.same_line else "dim"
        if len(shown.sides) == 1:
            self.indented(self.side(shown.sides[0], "bold cyan", width=self.width - _INDENT))
        elif self.console.width >= _SIDE_BY_SIDE_WIDTH:
            column = (self.width - _INDENT - 3) // 2
            left, right = (
                self.side(side, style, width=column, via_style=via_style)
                for side, style in zip(shown.sides, _SIDE_STYLES, strict=True)
            )
            self.page += beside(left, right, column, indent=_INDENT)
        else:
            for side, style in zip(shown.sides, _SIDE_STYLES, strict=True):
                self.indented(self.side(side, style, width=self.width - _INDENT, via_style=via_style))

    def indented(self, lines: list[Text]) -> None:
        self.page += [Text(" " * _INDENT) + line for line in lines]

    def ranks(self, ranks: Collection[int]) -> str:
        return name_guests(f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}", self.names)

    def side(self, side: ShownSide, style: str, *, width: int, via_style: str = "dim") -> list[Text]:
        who = f"{side.name}, {self.ranks(side.ranks)}" if side.ranks else side.name
        lines = hang(self.console, say(who, style), width)
        if side.op is not None:
            lines += hang(self.console, say(f"in {side.op}"), width)
        line = side.line
        if line is None:
            return lines + hang(self.console, say("source line not captured", "dim"), width)
        lines += hang(self.console, say(f"{short_path(line.file)}:{line.line}"), width)
        lines += hang(self.console, say(f"in {line.function}"), width)
        if line.source is not None:
            lines += hang(self.console, say(line.source, "bold"), width, mark="> ")
        if line.via is not None:
            lines += hang(self.console, say(f"via {line.via}", via_style), width)
        return lines

    def cause(self, cause: Cause) -> None:
        self.title(f"Cause: {cause.title}")
        self.add(say(f"{cause.id}, confidence {cause.certainty}", "dim"))
        self.add(say(cause.explanation))
        if cause.evidence:
            self.title("Evidence")
        for item in cause.evidence:
            who = f"{self.ranks((item.rank,))}, " if item.rank is not None else ""
            self.add(Text.assemble(say(f"{who}{item.source}: ", "cyan"), say(item.says)), mark="- ")
        if cause.remedy:
            self.title("What to do")
        for number, step in enumerate(cause.remedy, 1):
            self.add(say(step), mark=f"{number}. ")
        self.listing("See also", list(cause.references))

    def alternatives(self, causes: tuple[Cause, ...]) -> None:
        named = (f"{cause.title} ({cause.id}, confidence {cause.certainty})" for cause in causes)
        items = [f"{name}. {c.explanation}" if c.explanation else name for name, c in zip(named, causes, strict=True)]
        self.listing("Other possible causes", items)
