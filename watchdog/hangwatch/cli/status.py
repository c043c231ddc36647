"""``hangwatch status``: a table of ranks, live."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer
from rich.console import Group as Lines
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hangwatch.agent.nodeview import look_around
from hangwatch.cli.common import Json, print_json, stdout_console
from hangwatch.model.beats import Beat
from hangwatch.outputs.sanitize import clean
from hangwatch.sources.discovery import FoundJob
from hangwatch.sources.processes import sample_process

_PERIOD_S = 1.0


class StatusRow(msgspec.Struct, frozen=True):
    """One rank in one group. ``in_flight_s`` is None where nothing is in flight; ``behind``: operations behind the front."""

    job: str
    rank: int
    pid: int
    state: str
    group: str
    enqueued: int | None
    completed: int | None
    behind: int | None
    in_flight_s: float | None


def status(
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False, json: Json = False
) -> None:
    """Show every rank on this node: its groups, how far it has come, and what it has in flight."""
    console = stdout_console()
    if json:
        rows, _ = _rows()
        print_json(rows)
        return
    if once or not console.is_terminal:
        console.print(_render())
        return
    with Live(_render(), console=console, screen=False, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(_PERIOD_S)
                live.update(_render(), refresh=True)
        except KeyboardInterrupt:
            return


def _rows() -> tuple[list[StatusRow], list[str]]:
    found, reader = look_around()
    beats, _ = reader.read()
    rows = [row for job in found.jobs for row in _job_rows(job, beats)]
    return rows, [str(gap) for gap in found.gaps]


def _job_rows(job: FoundJob, beats: dict[int, Beat]) -> list[StatusRow]:
    front: dict[tuple[str, tuple[int, ...]], int] = {}
    for identity in job.ranks:
        for g in beats[identity.pid].groups if identity.pid in beats else ():
            front[g.name, g.ranks] = max(front.get((g.name, g.ranks), 0), g.enqueued)
    rows = []
    for identity in job.ranks:
        state = sample_process(identity).state
        beat = beats.get(identity.pid)
        if beat is None or not beat.groups:
            rows.append(StatusRow(job.job.id, identity.rank, identity.pid, state, "", None, None, None, None))
            continue
        age_s = beat.age_s(time.time_ns())
        rows += [
            StatusRow(
                job=job.job.id,
                rank=identity.rank,
                pid=identity.pid,
                state=state,
                group=g.label,
                enqueued=max(g.enqueued, 0),
                completed=max(g.completed, 0),
                behind=front[g.name, g.ranks] - max(g.enqueued, 0),
                in_flight_s=round(g.unmoved_s + age_s, 1) if g.in_flight else None,
            )
            for g in beat.groups
        ]
    return rows


def _render() -> Lines | Text:
    rows, gaps = _rows()
    if not rows:
        return Text("No ranks of a distributed job found on this node." + "".join(f"\n{clean(g)}" for g in gaps))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in (
        ("JOB", False), ("RANK", True), ("PID", True), ("STATE", False), ("GROUP", False), ("ENQUEUED", True),
        ("COMPLETED", True), ("BEHIND", True), ("IN FLIGHT", True),
    ):  # fmt: skip
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "JOB")
    for row in rows:
        flying = "" if row.in_flight_s is None else f"{row.in_flight_s:.1f} s"
        numbers = (
            ("no probe", "", "") if row.enqueued is None else (str(row.enqueued), str(row.completed), str(row.behind))
        )
        cells = (clean(row.job), str(row.rank), str(row.pid), row.state, clean(row.group), *numbers, flying)
        table.add_row(*(Text(c) for c in cells), style="yellow" if row.in_flight_s and row.in_flight_s > 5 else "")
    return Lines(table, *(Text(clean(g), style="dim") for g in gaps))
