"""The incident document as Markdown: whole for a ticket or a wiki, or brief for an issue or a pull request on GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangwatch import __version__
from hangwatch.model.incident import Cause, Collective, Evidence, Incident, Verdict
from hangwatch.model.text import number_ranks, short_path
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.markdown.elements import code, fold, listing, prose, section, with_names
from hangwatch.outputs.sanitize import MAX_CHARACTERS
from hangwatch.outputs.second_look import describe_second_look
from hangwatch.outputs.wording import (
    Place,
    ShownSide,
    describe_proof,
    group_places,
    name_kind,
    say_confidence,
    show_divergence,
)


@dataclass(frozen=True)
class Extent:
    """How much is shown: items per list, steps of a remedy, characters per text; and whether the reasoning is collapsed."""

    items: int
    steps: int
    characters: int
    folded: bool


#: Everything that the HTML report says in words.
WHOLE = Extent(items=40, steps=40, characters=MAX_CHARACTERS, folded=False)
#: Under 60 lines and within the 65,536 characters that a comment on GitHub may have, whatever the incident.
BRIEF = Extent(items=3, steps=5, characters=500, folded=True)


def render_markdown(incident: Incident, extent: Extent = WHOLE) -> str:
    """Return the whole document as Markdown, each item on its own line."""
    lines = list(_Report(incident, extent).lines())
    return with_names("\n".join(lines) + "\n", incident.verdict.names)


class _Report:
    def __init__(self, incident: Incident, extent: Extent) -> None:
        self.incident = incident
        self.extent = extent

    def lines(self) -> Iterator[str]:
        verdict = self.incident.verdict
        yield from self.head(verdict)
        if verdict.divergence is not None:
            shown = show_divergence(verdict.divergence, verdict)
            yield from section(self.prose(shown.title), listing(map(self.side, shown.sides), self.extent.items))
        if verdict.cause is not None:
            yield from self.cause(verdict.cause)
        yield from self.reasoning(verdict)
        yield from ("", f"Incident {self.code(self.incident.id)}, hangwatch {__version__}")

    def reasoning(self, verdict: Verdict) -> Iterator[str]:
        """Yield the reasons of the verdict: as sections, or as one collapsed list."""
        parts: Mapping[str, Iterable[str]] = {
            "Why it can never resolve": [self.prose(verdict.proof)] if verdict.proof else [],
            "Who waits for whom": map(self.prose, verdict.waits),
            "Evidence": map(self.evidence, verdict.cause.evidence if verdict.cause is not None else ()),
            "Other possible causes": map(self.alternative, verdict.alternatives),
            "Missing data": map(self.prose, self.incident.missing),
        }
        if not self.extent.folded:
            for title, entries in parts.items():
                yield from section(title, listing(entries, self.extent.items))
            yield from section("Ranks", listing(map(self.place, group_places(self.incident.ranks)), self.extent.items))
            return
        shown = {title: listing(entries, self.extent.items) for title, entries in parts.items()}
        nested = [
            line for title, lines in shown.items() if lines for line in (f"- {title}", *(f"  {one}" for one in lines))
        ]
        yield from fold("Evidence and reasoning", nested)

    def prose(self, foreign: str) -> str:
        return prose(foreign, self.extent.characters)

    def code(self, foreign: str) -> str:
        return code(foreign, self.extent.characters)

    def head(self, verdict: Verdict) -> Iterator[str]:
        incident, job = self.incident, self.incident.job
        kind, proof = name_kind(verdict.kind), describe_proof(verdict)
        yield from (f"## {kind}, {proof}" if proof else f"## {kind}", "", f"**{self.prose(verdict.summary)}**", "")
        more = f" and {len(job.nodes) - self.extent.items} more nodes" if len(job.nodes) > self.extent.items else ""
        nodes = ", ".join(map(self.code, job.nodes[: self.extent.items])) + more
        yield f"- Job {self.code(job.id)} ({self.prose(job.described)})" + (f" on {nodes}" if nodes else "")
        if job.command:
            yield f"- Command {self.code(job.command)}"
        if verdict.culprit_ranks:
            yield f"- Culprit: {number_ranks(verdict.culprit_ranks)}"
        if verdict.waiting_ranks:
            yield f"- Waiting: {number_ranks(verdict.waiting_ranks)}"
        if verdict.collective is not None:
            yield f"- Operation: {self.operation(verdict.collective)}"
        ended = f", ended {self.prose(incident.ended_at)}" if incident.ended_at is not None else ""
        yield f"- Since {self.prose(incident.onset_at)}{ended}"
        yield from (f"- {self.prose(line)}" for line in describe_history(incident.history))
        if action := describe_second_look(incident):
            yield f"- Action: {self.prose(action)}"

    def operation(self, collective: Collective) -> str:
        ranks = f" of {number_ranks(collective.group_ranks)}" if collective.group_ranks else ""
        number = f", sequence number {collective.seq}" if collective.seq is not None else ""
        shapes = ", ".join(str(list(size)) for size in collective.sizes[: self.extent.items])
        kinds = f" of {self.prose(', '.join(collective.dtypes[: self.extent.items]))}" if collective.dtypes else ""
        tensors = f", tensors {self.code(shapes)}{kinds}" if shapes else ""
        return f"{self.code(collective.op)} in {self.code(collective.group)}{ranks}{number}{tensors}"

    def side(self, side: ShownSide) -> str:
        who = (
            f"**{side.name.capitalize()}, {number_ranks(side.ranks)}**"
            if side.ranks
            else f"**{side.name.capitalize()}**"
        )
        within = f" in {self.code(side.op)}" if side.op is not None else ""
        line = side.line
        if line is None:
            return f"{who}{within}: no line of the program seen"
        where = f"{self.code(f'{short_path(line.file)}:{line.line}')} in {self.code(line.function)}"
        source = f": {self.code(line.source)}" if line.source else ""
        via = f", via {self.code(line.via)}" if line.via else ""
        return f"{who}{within}: {where}{source}{via}"

    def cause(self, cause: Cause) -> Iterator[str]:
        yield from section(f"Cause: {self.prose(cause.title)}", [f"{self.code(cause.id)}{say_confidence(cause)}"])
        if cause.explanation:
            yield from ("", self.prose(cause.explanation))
        yield from section("What to do", listing(map(self.prose, cause.remedy), self.extent.steps, numbered=True))
        if not self.extent.folded:
            yield from section("See also", listing(map(self.reference, cause.references), self.extent.items))

    def reference(self, address: str) -> str:
        """Return a link if ``address`` is an http(s) URL, else its text: a bundle is untrusted."""
        safe = address.startswith(("https://", "http://")) and not set(address) & set("<>\\ ") and address.isprintable()
        return f"<{address[:MAX_CHARACTERS]}>" if safe else self.code(address)

    def evidence(self, item: Evidence) -> str:
        who = f"{number_ranks((item.rank,))}, " if item.rank is not None else ""
        return f"{who}{self.prose(item.source)}: {self.prose(item.says)}"

    def alternative(self, cause: Cause) -> str:
        why = f". {self.prose(cause.explanation)}" if cause.explanation else ""
        return f"{self.prose(cause.title)} ({self.code(cause.id)}){why}"

    def place(self, place: Place) -> str:
        where = f" in {self.code(place.top)}" if place.top else ", no Python frames"
        return f"{number_ranks(place.ranks)}: {self.prose(place.state)}{where}"
