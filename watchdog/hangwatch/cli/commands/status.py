"""``hangwatch status``: a live table of ranks."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from hangwatch.cli.common import Json, print_json, stdout_console
from hangwatch.model.live import LiveView
from hangwatch.outputs.terminal.rank_table import render_view
from hangwatch.sources.node_view import NodeObserver

_PERIOD_S = 1.0


class StatusRow(msgspec.Struct, frozen=True):
    """One rank in one group. ``in_flight_s`` is None if nothing is in flight; ``behind``: operations behind the fastest rank.

    ``state`` is a word (``running``, ``in_flight``, ``stopped``, ``lost``, ``unprobed``); ``frame`` the main thread's top frame.
    """

    job: str
    rank: int
    pid: int
    state: str
    group: str
    enqueued: int | None
    completed: int | None
    behind: int | None
    in_flight_s: float | None
    frame: str | None = None


def status(
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False, json: Json = False
) -> None:
    """Show the progress of every rank on this node. For each process group: sequence numbers, time in flight, top frame."""
    console = stdout_console()
    observer = NodeObserver()
    view, notes = observer.view()
    if json:
        print_json(_status_rows(view))
        return
    if once or not console.is_terminal:
        width = console.width if console.is_terminal else None
        # A pipe has no width, so nothing is truncated or wrapped.
        console.print(render_view(view, notes, width=width), soft_wrap=width is None)
        return

    def fitted() -> Lines | Text:
        return render_view(view, notes, height=console.height, width=console.width)

    with Live(fitted(), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(_PERIOD_S)
                view, notes = observer.view()
                live.update(fitted(), refresh=True)
        except KeyboardInterrupt:
            pass
    console.print(fitted())


def _status_rows(view: LiveView) -> list[StatusRow]:
    return [
        StatusRow(
            job=job.id,
            rank=rank.rank,
            pid=rank.pid,
            state=rank.state,
            group=progress.label if progress is not None else "",
            enqueued=progress.enqueued if progress is not None else None,
            completed=progress.completed if progress is not None else None,
            behind=fronts[progress.label].behind_by(progress) if progress is not None else None,
            in_flight_s=round(progress.in_flight_s, 1)
            if progress is not None and progress.in_flight_s is not None
            else None,
            frame=rank.frame,
        )
        for job in view.jobs
        for fronts in ({front.label: front for front in job.groups},)
        for rank in job.ranks
        for progress in rank.groups or (None,)
    ]
