"""``hangwatch status``: a live table of ranks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from hangwatch.analysis.progress import live_job, word_state
from hangwatch.cli.common import Json, print_json, stdout_console
from hangwatch.model.live import LiveView
from hangwatch.model.stacks import StackSample
from hangwatch.model.text import short_path
from hangwatch.outputs.terminal.rank_table import render_view
from hangwatch.sources.node_view import discover_node
from hangwatch.sources.proc.samples import sample_process
from hangwatch.sources.stacks.samples import sample_stacks

_PERIOD_S = 1.0
#: Reading a stack starts a py-spy process (about 10 ms), so stacks are read less often than beats, and of few ranks.
_FRAMES_EVERY_S = 3.0
_MAX_STACKS = 64


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
    observer = _NodeObserver()
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


class _NodeObserver:
    """Observes the node repeatedly; stacks are refreshed less often."""

    def __init__(self) -> None:
        self._frames: Mapping[int, str] = {}
        self._frames_at_s: float | None = None

    def view(self) -> tuple[LiveView, list[str]]:
        """The current state of all jobs, and what could not be read."""
        found, reader = discover_node()
        beats, _ = reader.read()
        self._read_frames([identity.pid for job in found.jobs for identity in job.ranks])
        now_ns = time.time_ns()
        jobs = []
        for job in found.jobs:
            states = {r.rank: word_state(beats.get(r.pid), sample_process(r).state) for r in job.ranks}
            jobs.append(live_job(job.job, job.ranks, beats, states, now_ns, self._frames))
        return LiveView(now_ns, tuple(jobs)), [str(gap) for gap in found.gaps]

    def _read_frames(self, pids: list[int]) -> None:
        now_s = time.monotonic()
        if self._frames_at_s is not None and now_s - self._frames_at_s < _FRAMES_EVERY_S:
            return
        self._frames_at_s = now_s
        samples = asyncio.run(sample_stacks(pids[:_MAX_STACKS], with_locals=False))
        self._frames = {pid: _top(sample) for pid, sample in samples.items() if isinstance(sample, StackSample)}


def _top(sample: StackSample) -> str:
    frames = sample.main.frames if sample.main is not None else ()
    return f"{frames[0].function} ({short_path(frames[0].file)}:{frames[0].line})" if frames else ""


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
