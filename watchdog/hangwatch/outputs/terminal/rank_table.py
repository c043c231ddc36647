"""The table of ranks for ``hangwatch status``. May import the model and ``sanitize``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.numbers import name_guests
from hangwatch.model.progress import LONG_S, LiveProgress
from hangwatch.model.text import format_ranks
from hangwatch.outputs.sanitize import excerpt
from hangwatch.outputs.second_look import describe_second_look
from hangwatch.outputs.terminal.console import Line, Span
from hangwatch.outputs.terminal.layout import paragraph
from hangwatch.outputs.terminal.verdict import describe_verdict
from hangwatch.outputs.wording import describe_cause, describe_stall_timeout, duration, mark_culprit

_STYLES = {
    "lost": "bold red", "stuck": "bold red", "stopped": "magenta", "communicating": "cyan", "waiting": "cyan",
    "unprobed": "dim",
}  # fmt: skip
_CULPRIT_STYLE = "bold red"
_NAME_CHARACTERS = 60
#: The columns, and whether they hold numbers, which are right-aligned.
_COLUMNS = (
    ("RANK", True), ("PID", True), ("STATE", False), ("GROUP", False), ("SEQ", True), ("DONE", True), ("BEHIND", True),
    ("IN FLIGHT", True), ("TOP FRAME", False),
)  # fmt: skip
_PID, _GROUP, _FRAME = 1, 3, 8
#: Minimum widths of group names and frames.
_LEAST_NAME, _LEAST_FRAME = 10, 16
_WIDE = 100
#: Width of prose where the output has none.
_PROSE_WIDTH = 110
#: A rank in a group, how many operations behind the group's front it is there, and the word that marks it if it is a culprit.
_Row = tuple[LiveRank, LiveProgress | None, int, str]


def render_view(
    view: LiveView, notes: Sequence[str] = (), *, height: int | None = None, width: int | None = None
) -> list[Line]:
    """Return every job with its open incident and a row per rank and group.

    ``height``: available lines (None: unlimited); if they do not suffice, the rows of culprits, those furthest behind and longest
    in flight are shown, and the number of the others. ``width``: characters per line (None: unlimited); only names and frames
    are truncated, never numbers.
    """
    if not view.jobs:
        return [(Span("No ranks of a distributed job found on this node."),), *((Span(excerpt(n)),) for n in notes)]
    lines: list[Line] = []
    for job in view.jobs:
        rows = list(_rows(job))
        head = list(_head(job, width))
        # Besides its rows a job has its head, column heads, the number of hidden rows, and a blank line.
        room = None if height is None else max((height - len(notes)) // len(view.jobs) - len(head) - 3, 3)
        lines += [() for _ in lines[:1]]
        lines += [*head, *_table(rows if room is None else _worst(rows, room), width)]
        if room is not None and len(rows) > room:
            lines.append((Span(f"and {len(rows) - room} more rows; --once prints them all", "dim"),))
    lines += [(Span(excerpt(note), "dim"),) for note in notes]
    return lines if width is None else [_cut(line, width) for line in lines]


def _cut(line: Line, width: int) -> Line:
    if sum(len(span.text) for span in line) <= width:
        return line
    kept: list[Span] = []
    left = width - 1
    for span in line:
        kept.append(Span(span.text[:left], span.style))
        left -= len(kept[-1].text)
    return (*kept, Span("…"))


def _rows(job: LiveJob) -> Iterator[_Row]:
    fronts = {front.label: front for front in job.groups}
    verdict = job.incident.verdict if job.incident is not None else None
    marks = dict.fromkeys(verdict.culprit_ranks, mark_culprit(verdict)) if verdict is not None else {}
    for rank in job.ranks:
        for progress in rank.groups or (None,):
            behind = fronts[progress.label].behind_by(progress) if progress is not None else 0
            yield rank, progress, behind, marks.get(rank.rank, "")


def _worst(rows: list[_Row], room: int) -> list[_Row]:
    """Return the most important rows, in their usual order."""

    def weight(numbered: tuple[int, _Row]) -> tuple[bool, bool, float, float, int]:
        number, (rank, progress, behind, mark) = numbered
        flying_s = progress.in_flight_s or 0.0 if progress is not None else 0.0
        return (not mark, rank.state not in {"lost", "stopped"}, -behind, -flying_s, number)

    chosen = sorted(sorted(enumerate(rows), key=weight)[:room])
    return [row for _, row in chosen]


def _head(job: LiveJob, width: int | None) -> Iterator[Line]:
    size = f", {len(job.ranks)} of {job.world_size} ranks here" if job.world_size is not None else ""
    yield Span(f"job {excerpt(job.title, 120)}", "bold"), Span(f" ({excerpt(job.launcher, 40)}{size})")
    if job.incident is not None:
        yield from _incident(job.incident, width or _PROSE_WIDTH)
        if job.incident.verdict.kind not in {"slow", "silent_failure"}:
            return
    behind = [group for group in job.groups if group.behind]
    for group in behind[:2]:
        several = "s" if len(group.behind) > 1 else ""
        ranks = name_guests(format_ranks(group.behind), job.names)[:120]
        said = f"{excerpt(group.label, 80)}: rank{several} {ranks} behind; the rank furthest ahead is at {group.front}"
        yield (Span(said, "yellow"),)
    longest_s = max((group.in_flight_s or 0.0 for group in job.groups), default=0.0)
    if after := describe_stall_timeout(job):
        waiting = f"waiting for {duration(longest_s)}; " if longest_s >= LONG_S else ""
        yield (Span(f"{waiting}a stall would be reported after {after}"),)


def _incident(incident: Incident, width: int) -> Iterator[Line]:
    """Yield what an agent has found, since when, and its cause."""
    verdict = incident.verdict
    yield from paragraph(f": {verdict.summary}", width, label=describe_verdict(verdict))
    if verdict.cause is not None:
        yield from paragraph(describe_cause(verdict, verdict.cause), width, mark=Span("Cause     ", "bold"))
        yield from paragraph(f"hangwatch explain {verdict.cause.id}", width, mark=Span("More      ", "bold"))
    if action := describe_second_look(incident):
        yield from paragraph(action, width, mark=Span("Action    ", "bold"))
    yield from paragraph(f"{incident.onset_at}, {incident.id}", width, mark=Span("Since     ", "bold"))


def _table(rows: Sequence[_Row], width: int | None) -> Iterator[Line]:
    cells = [[Span(name, "bold") for name, _ in _COLUMNS], *(list(_cells(*row)) for row in rows)]
    widths = [max(len(row[column].text) for row in cells) for column in range(len(_COLUMNS))]
    gap = 2 if width is None or width >= _WIDE else 1
    shown = _fit(widths, width, gap)
    for row in cells:
        line = [_align(row[column], widths[column], right=_COLUMNS[column][1]) for column in shown]
        while line and not line[-1].text.strip():
            line.pop()
        last = line.pop()
        yield (*(Span(cell.text + " " * gap, cell.style) for cell in line), Span(last.text.rstrip(), last.style))


def _align(cell: Span, width: int, *, right: bool) -> Span:
    text = cell.text if len(cell.text) <= width else f"{cell.text[: width - 1]}…"
    return Span(text.rjust(width) if right else text.ljust(width), cell.style)


def _fit(widths: list[int], width: int | None, gap: int) -> list[int]:
    """Return the columns that fit; shrink the widths of names and frames."""
    shown = list(range(len(_COLUMNS)))
    if width is None:
        return shown
    least = min(widths[_GROUP], _LEAST_NAME)

    def room() -> int:
        """Return the width that is left for names and frames."""
        return width - sum(widths[c] for c in shown if c not in {_GROUP, _FRAME}) - gap * (len(shown) - 1)

    for column, needed in ((_PID, least + _LEAST_FRAME), (_FRAME, least)):
        if room() < needed:
            shown.remove(column)
    frame = min(widths[_FRAME], _LEAST_FRAME, max(room() - least, 0)) if _FRAME in shown else 0
    widths[_GROUP] = max(min(widths[_GROUP], room() - frame), 1)
    widths[_FRAME] = max(min(widths[_FRAME], room() - widths[_GROUP]), 1)
    return shown


def _cells(rank: LiveRank, progress: LiveProgress | None, behind: int, mark: str) -> Iterator[Span]:
    yield Span(excerpt(rank.called, _NAME_CHARACTERS), _CULPRIT_STYLE if mark else "")
    yield Span(str(rank.pid))
    state = excerpt(rank.state, 20)
    yield Span(f"{state}, {mark}" if mark else state, _CULPRIT_STYLE if mark else _STYLES.get(rank.state, ""))
    if progress is None:
        yield from (Span("no group yet" if rank.beat_age_s is not None else "no probe", "dim"), *[Span("")] * 4)
    else:
        flying_s = progress.in_flight_s
        yield Span(excerpt(progress.label, _NAME_CHARACTERS))
        yield Span(str(progress.enqueued))
        yield Span(str(progress.completed))
        yield Span(str(behind), "bold yellow" if behind else "")
        long = flying_s is not None and flying_s >= LONG_S
        yield Span("" if flying_s is None else f"{flying_s:.1f} s", "yellow" if long else "")
    yield Span(excerpt(rank.frame or "", 200), "dim")
