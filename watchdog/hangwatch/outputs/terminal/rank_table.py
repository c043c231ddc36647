"""The table of ranks for ``hangwatch status``. May import the model, rich and ``sanitize``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group as Lines
from rich.text import Text

from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.numbers import name_guests
from hangwatch.model.progress import LiveProgress
from hangwatch.model.text import format_ranks
from hangwatch.outputs.sanitize import excerpt

#: Longer than a typical step; used for colour only, never for a verdict.
_LONG_S = 5.0
_STYLES = {"lost": "bold red", "stopped": "magenta", "in_flight": "cyan", "unprobed": "dim"}
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
#: A rank in a group, and how many operations behind the group's front it is there.
_Row = tuple[LiveRank, LiveProgress | None, int]


def render_view(
    view: LiveView, notes: Sequence[str] = (), *, height: int | None = None, width: int | None = None
) -> Lines | Text:
    """Every job with a row per rank and group.

    ``height``: available lines (None: unlimited); if they do not suffice, the rows furthest behind and longest in flight
    are shown, and the number of the others. ``width``: characters per line (None: unlimited); only names and frames are
    truncated, never numbers.
    """
    if not view.jobs:
        return Text("No ranks of a distributed job found on this node." + "".join(f"\n{excerpt(n)}" for n in notes))
    # Lines per job besides its rows: heading, two for ranks behind, column heads, number of hidden rows, blank line.
    room = None if height is None else max((height - len(notes)) // len(view.jobs) - 6, 3)
    lines: list[Text] = []
    for job in view.jobs:
        rows = list(_rows(job))
        lines += [Text() for _ in lines[:1]]
        lines += [*_head(job), *_table(rows if room is None else _worst(rows, room), width)]
        if room is not None and len(rows) > room:
            lines.append(Text(f"and {len(rows) - room} more rows; --once prints them all", style="dim"))
    lines += [Text(excerpt(note), style="dim") for note in notes]
    if width is not None:
        for line in lines:
            line.truncate(width, overflow="ellipsis")
    return Lines(*lines)


def _rows(job: LiveJob) -> Iterator[_Row]:
    fronts = {front.label: front for front in job.groups}
    for rank in job.ranks:
        for progress in rank.groups or (None,):
            yield rank, progress, fronts[progress.label].behind_by(progress) if progress is not None else 0


def _worst(rows: list[_Row], room: int) -> list[_Row]:
    """The most important rows, in their usual order."""

    def weight(numbered: tuple[int, _Row]) -> tuple[bool, float, float, int]:
        number, (rank, progress, behind) = numbered
        flying_s = progress.in_flight_s or 0.0 if progress is not None else 0.0
        return (rank.state not in {"lost", "stopped"}, -behind, -flying_s, number)

    chosen = sorted(sorted(enumerate(rows), key=weight)[:room])
    return [row for _, row in chosen]


def _head(job: LiveJob) -> Iterator[Text]:
    size = f", {len(job.ranks)} of {job.world_size} ranks here" if job.world_size is not None else ""
    yield Text.assemble((f"job {excerpt(job.id, 120)}", "bold"), f" ({excerpt(job.launcher, 40)}{size})")
    behind = [group for group in job.groups if group.behind]
    for group in behind[:2]:
        several = "s" if len(group.behind) > 1 else ""
        ranks = name_guests(format_ranks(group.behind), job.names)[:120]
        yield Text(
            f"{excerpt(group.label, 80)}: rank{several} {ranks} behind, the furthest is at {group.front}", "yellow"
        )


def _table(rows: Sequence[_Row], width: int | None) -> Iterator[Text]:
    cells = [[Text(name, style="bold") for name, _ in _COLUMNS], *(list(_cells(*row)) for row in rows)]
    widths = [max(row[column].cell_len for row in cells) for column in range(len(_COLUMNS))]
    gap = 2 if width is None or width >= _WIDE else 1
    shown = _fit(widths, width, gap)
    for row in cells:
        line = Text()
        for column in shown:
            cell = row[column]
            cell.truncate(widths[column], overflow="ellipsis")
            cell.align("right" if _COLUMNS[column][1] else "left", widths[column])
            line.append_text(cell).append(" " * gap)
        line.rstrip()
        yield line


def _fit(widths: list[int], width: int | None, gap: int) -> list[int]:
    """The columns that fit; shrinks the widths of names and frames."""
    shown = list(range(len(_COLUMNS)))
    if width is None:
        return shown
    least = min(widths[_GROUP], _LEAST_NAME)

    def room() -> int:
        """Width left for names and frames."""
        return width - sum(widths[c] for c in shown if c not in {_GROUP, _FRAME}) - gap * (len(shown) - 1)

    for column, needed in ((_PID, least + _LEAST_FRAME), (_FRAME, least)):
        if room() < needed:
            shown.remove(column)
    frame = min(widths[_FRAME], _LEAST_FRAME, max(room() - least, 0)) if _FRAME in shown else 0
    widths[_GROUP] = max(min(widths[_GROUP], room() - frame), 1)
    widths[_FRAME] = max(min(widths[_FRAME], room() - widths[_GROUP]), 1)
    return shown


def _cells(rank: LiveRank, progress: LiveProgress | None, behind: int) -> Iterator[Text]:
    yield Text(excerpt(rank.called, _NAME_CHARACTERS))
    yield Text(str(rank.pid))
    yield Text(excerpt(rank.state.replace("_", " "), 20), style=_STYLES.get(rank.state, ""))
    if progress is None:
        yield from (Text("no group yet" if rank.beat_age_s is not None else "no probe", style="dim"), *[Text()] * 4)
    else:
        flying_s = progress.in_flight_s
        yield Text(excerpt(progress.label, _NAME_CHARACTERS))
        yield Text(str(progress.enqueued))
        yield Text(str(progress.completed))
        yield Text(str(behind), style="bold yellow" if behind else "")
        yield Text(
            "" if flying_s is None else f"{flying_s:.1f} s", style="yellow" if flying_s and flying_s >= _LONG_S else ""
        )
    yield Text(excerpt(rank.frame or "", 200), style="dim")
