"""The table of ranks for a terminal, as ``hangwatch status`` shows it. May import the model, rich and ``sanitize``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from hangwatch.model.live import LiveJob, LiveRank, LiveView, RankProgress
from hangwatch.model.text import format_ranks
from hangwatch.outputs.sanitize import excerpt

#: Longer than an ordinary step of an ordinary job; only coloured, never judged by.
_LONG_S = 5.0
_STYLES = {"lost": "bold red", "stopped": "magenta", "in_flight": "cyan", "unprobed": "dim"}
_NAME_CHARACTERS = 60
_Row = tuple[LiveRank, RankProgress | None]


def render_view(view: LiveView, notes: Sequence[str] = (), *, height: int | None = None) -> Lines | Text:
    """Every job with a row for each rank and group. ``height``: the lines there are (None: no end of them); the ranks that
    are furthest behind, then those that are longest in flight, are shown then, and how many are not."""
    if not view.jobs:
        return Text("No ranks of a distributed job found on this node." + "".join(f"\n{excerpt(n)}" for n in notes))
    # Each job takes a line for itself, its heads, what was left out, and a blank one.
    room = None if height is None else max((height - len(notes)) // len(view.jobs) - 4, 3)
    lines: list[Table | Text] = []
    for job in view.jobs:
        rows = list(_rows(job))
        lines += [Text() for _ in lines[:1]]
        lines += [_head(job), _table(rows if room is None else _worst(rows, room))]
        if room is not None and len(rows) > room:
            lines.append(Text(f"and {len(rows) - room} more rows; --once prints them all", style="dim"))
    return Lines(*lines, *(Text(excerpt(note), style="dim") for note in notes))


def _rows(job: LiveJob) -> Iterator[_Row]:
    for rank in job.ranks:
        yield from ((rank, progress) for progress in rank.groups or (None,))


def _worst(rows: list[_Row], room: int) -> list[_Row]:
    """The rows to look at, in their usual order."""

    def weight(numbered: tuple[int, _Row]) -> tuple[bool, float, float, int]:
        number, (rank, progress) = numbered
        flying_s = progress.in_flight_s or 0.0 if progress is not None else 0.0
        behind = progress.behind if progress is not None else 0
        return (rank.state not in {"lost", "stopped"}, -behind, -flying_s, number)

    chosen = sorted(sorted(enumerate(rows), key=weight)[:room])
    return [row for _, row in chosen]


def _head(job: LiveJob) -> Text:
    size = f", {len(job.ranks)} of {job.world_size} ranks here" if job.world_size is not None else ""
    text = Text.assemble((f"job {excerpt(job.id, 120)}", "bold"), f" ({excerpt(job.launcher, 40)}{size})")
    behind = [group for group in job.groups if group.behind]
    for group in behind[:2]:
        text.append(
            f"; {excerpt(group.label, 80)}: ranks {format_ranks(group.behind)[:120]} behind {group.front}", "yellow"
        )
    return text


def _table(rows: Sequence[_Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    cells = [tuple(_cells(rank, progress)) for rank, progress in rows]
    for column, (name, right) in enumerate((
        ("RANK", True), ("PID", True), ("STATE", False), ("GROUP", False), ("ENQUEUED", True), ("COMPLETED", True),
        ("BEHIND", True), ("IN FLIGHT", True), ("TOP FRAME", False),
    )):  # fmt: skip
        # Half a number would mislead: where there is no room, names and frames give way.
        whole = name not in {"GROUP", "TOP FRAME"}
        table.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=max([len(name), *(len(row[column].plain) for row in cells)]) if whole else 8,
        )
    for row in cells:
        table.add_row(*row)
    return table


def _cells(rank: LiveRank, progress: RankProgress | None) -> Iterator[Text]:
    yield Text(str(rank.rank))
    yield Text(str(rank.pid))
    yield Text(excerpt(rank.state.replace("_", " "), 20), style=_STYLES.get(rank.state, ""))
    if progress is None:
        yield from (Text("no group yet" if rank.beat_age_s is not None else "no probe", style="dim"), *[Text()] * 4)
    else:
        flying_s = progress.in_flight_s
        yield Text(excerpt(progress.group, _NAME_CHARACTERS))
        yield Text(str(progress.enqueued))
        yield Text(str(progress.completed))
        yield Text(str(progress.behind), style="bold yellow" if progress.behind else "")
        yield Text(
            "" if flying_s is None else f"{flying_s:.1f} s", style="yellow" if flying_s and flying_s >= _LONG_S else ""
        )
    yield Text(excerpt(rank.frame or "", 200), style="dim")
