"""``hangwatch status``: a live table of ranks, with what was found of their jobs."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from hangwatch.agent.host.stall_timeouts import StallTimeout, read_stall_timeouts
from hangwatch.cli.options import SectionCommand, as_json, state_dir
from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveJob, LiveView
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import read_incident


class FromAgents:
    """What the agents of this node have in a state directory: open incidents, and how long a stall may last."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._archive = Archive(state_dir)

    def add_to(self, view: LiveView) -> LiveView:
        """Return the view with what is found of each job, and with the states that its incident has, as the page has them."""
        jobs = {job.id for job in view.jobs}
        folders = {one.job: one.id for one in reversed(self._archive.list()) if one.open and one.job in jobs}
        found = {job: read_incident(self._state_dir / "incidents" / id) for job, id in folders.items()}
        stalls = read_stall_timeouts(self._state_dir)
        known = (_with_incident(_with_stall(job, stalls.get(job.id)), found.get(job.id)) for job in view.jobs)
        return msgspec.structs.replace(view, jobs=tuple(known))


def _with_stall(job: LiveJob, stall: StallTimeout | None) -> LiveJob:
    return job if stall is None else msgspec.structs.replace(job, stall_after_s=stall.after_s, stall_why=stall.why)


def _with_incident(job: LiveJob, incident: Incident | None) -> LiveJob:
    """Return the job with its incident, unless the job's processes are gone: an agent left that incident behind."""
    if incident is None:
        return job
    states = {(entry.rank, entry.pid): entry.state for entry in incident.ranks}
    if not any((rank.rank, rank.pid) in states for rank in job.ranks):
        return job
    hangs = incident.verdict.kind not in {"silent_failure", "slow"}
    ranks = tuple(
        msgspec.structs.replace(rank, state=states.get((rank.rank, rank.pid), rank.state))
        if hangs and rank.state not in {"lost", "stopped"}
        else rank
        for rank in job.ranks
    )
    return msgspec.structs.replace(job, incident=incident, ranks=ranks)


class StatusRow(msgspec.Struct, frozen=True):
    """One rank in one group. ``in_flight_s`` is None if nothing is in flight; ``behind``: operations behind the fastest rank.

    ``state`` is one word; ``frame`` the main thread's top frame; ``incident`` the id of the job's incident.
    ``stall_after_s``, ``stall_why``: after how long a stall of the job would be reported now, and why; null without an agent.
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
    culprit: bool = False
    incident: str | None = None
    stall_after_s: float | None = None
    stall_why: str | None = None


def status_rows(view: LiveView) -> list[StatusRow]:
    """Return a row for each rank and group."""
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
            culprit=job.incident is not None and rank.rank in job.incident.verdict.culprit_ranks,
            incident=job.incident.id if job.incident is not None else None,
            stall_after_s=job.stall_after_s,
            stall_why=job.stall_why or None,
        )
        for job in view.jobs
        for fronts in ({front.label: front for front in job.groups},)
        for rank in job.ranks
        for progress in rank.groups or (None,)
    ]


_PERIOD_S = 1.0
#: To the alternate screen and back, and to its first line; what is left of a line and of the screen is erased (xterm's control
#: sequences, and ECMA-48).
_ENTER, _LEAVE, _HOME, _END_OF_LINE, _BELOW = (
    "\x1b[?1049h\x1b[?25l",
    "\x1b[?25h\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
)


@click.command(cls=SectionCommand)
@click.option("--once", is_flag=True, help="Print the table once and exit.")
@as_json
@state_dir
def status(once: bool, as_json: bool, state_dir: Path | None) -> None:
    """Show the ranks of every job on this node.

    For each process group: sequence numbers, time in flight, top frame. For a job that hangs: the verdict, with its culprits
    marked.
    """
    import time

    from hangwatch.cli.common import print_json, stdout_console
    from hangwatch.config.directories import default_state_dir
    from hangwatch.outputs.terminal.rank_table import render_view
    from hangwatch.sources.node_view import NodeObserver

    console = stdout_console()
    observer, found = NodeObserver(), FromAgents(state_dir or default_state_dir())

    def look() -> tuple[LiveView, list[str]]:
        view, notes = observer.view()
        return found.add_to(view), notes

    view, notes = look()
    if as_json:
        print_json(status_rows(view))
        return
    if once or not console.is_terminal:
        # A pipe has no width, so nothing is truncated or wrapped.
        console.print(render_view(view, notes, width=console.width if console.is_terminal else None))
        return
    console.stream.write(_ENTER)
    try:
        while True:
            lines = render_view(view, notes, height=console.height, width=console.width)
            shown = "\n".join(f"{console.render(line)}{_END_OF_LINE}" for line in lines)
            console.stream.write(f"{_HOME}{shown}{_BELOW}")
            console.stream.flush()
            time.sleep(_PERIOD_S)
            view, notes = look()
    except KeyboardInterrupt:
        pass
    finally:
        console.stream.write(_LEAVE)
        console.stream.flush()
    console.print(render_view(view, notes, height=console.height, width=console.width))
