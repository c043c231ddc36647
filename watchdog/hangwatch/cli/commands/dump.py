"""``hangwatch dump``: capture and diagnose now, including jobs that were started without hangwatch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand, SectionOption, as_json, verbose
from hangwatch.cli.settings import JOBS, takes_settings

if TYPE_CHECKING:
    from hangwatch.sources.discovery.found_jobs import FoundJob

#: Characters of a command in the list of jobs.
_COMMAND_CHARACTERS = 120


@click.command(cls=SectionCommand)
@click.option(
    "--pid", "pids", cls=SectionOption, section=JOBS, metavar="PID", type=int, multiple=True,
    help="The job that this process belongs to (a rank or a launcher); repeatable.",
)  # fmt: skip
@click.option("--all", "every", cls=SectionOption, section=JOBS, is_flag=True, help="Every job of every user.")
@takes_settings("state_dir", "with_values", "condition_values", "native_stacks")
@as_json
@verbose
def dump(
    pids: tuple[int, ...], every: bool, state_dir: str | None, as_json: bool, verbose: bool, **given: object
) -> None:
    """Capture and diagnose a job now: yours, if only one runs; otherwise choose one with --pid.

    Exit status 0: no hang found; 1: hang found; 2: no job found, or none was chosen.
    """
    import asyncio

    from hangwatch.agent.dump import dump_job
    from hangwatch.cli.common import hang_status, print_json, stdout_console
    from hangwatch.cli.settings import combine
    from hangwatch.config.directories import default_state_dir, prepare_state_dir
    from hangwatch.outputs.bundle.bundle import write_bundle
    from hangwatch.outputs.terminal.verdict import print_verdict
    from hangwatch.sources.node_view import discover_node

    settings = combine(given)
    state = prepare_state_dir(Path(state_dir) if state_dir else default_state_dir())
    found, reader = discover_node()
    status = 0
    for job in _choose(found.jobs, [str(gap) for gap in found.gaps], pids, every=every):
        incident, capture = asyncio.run(dump_job(job, reader, found.gaps, settings))
        path = write_bundle(state, incident, capture)
        status = max(status, hang_status(incident))
        if as_json:
            print_json(incident)
        else:
            print_verdict(incident, stdout_console(), bundle=path, verbose=verbose)
    raise SystemExit(status)


def _choose(jobs: Sequence[FoundJob], gaps: Sequence[str], pids: Sequence[int], *, every: bool) -> Sequence[FoundJob]:
    """Return the jobs to capture: those that were named, else the caller's only one. Raises ``UserError``.

    ``gaps``: what could not be seen on this node.
    """
    import os

    from hangwatch.cli.common import stderr_console
    from hangwatch.model.errors import UserError
    from hangwatch.outputs.terminal.console import Span
    from hangwatch.outputs.terminal.layout import table

    chosen = [job for job in jobs if _belongs(job, pids)] if pids else list(jobs)
    if not chosen:
        for gap in gaps:
            stderr_console().say(f"hangwatch: {gap}")
        where = f"for process {', '.join(map(str, pids))}" if pids else "on this node"
        raise UserError(f"no ranks of a distributed job found {where}; is the job running on this node, as this user?")
    if pids or every:
        return chosen
    own = [job for job in chosen if _user(job) == os.getuid()]
    if len(own) == 1:
        return own
    rows = [
        (Span(str(job.ranks[0].pid)), Span(_name(_user(job))), Span(str(len(job.ranks))), Span(_command(job)))
        for job in chosen
    ]
    stderr_console().print(table(("PID", "USER", "RANKS", "COMMAND"), rows))
    whose = (
        f"you run {len(own)} jobs on this node" if own else f"none of the {len(chosen)} job(s) on this node is yours"
    )
    raise UserError(f"{whose}; choose one with --pid PID, or take every job of every user with --all")


def _command(job: FoundJob) -> str:
    from hangwatch.outputs.sanitize import excerpt

    return excerpt(job.job.command or job.job.id, _COMMAND_CHARACTERS)


def _user(job: FoundJob) -> int | None:
    """Return the user whose processes the job's ranks are; None if they have ended."""
    from hangwatch.sources.proc.files import read_user

    return next((user for rank in job.ranks if (user := read_user(rank.pid)) is not None), None)


def _name(user: int | None) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name if user is not None else ""
    except KeyError:
        return str(user)


def _belongs(job: FoundJob, pids: Sequence[int]) -> bool:
    wanted = set(pids)
    return any(r.pid in wanted for r in job.ranks) or any(_ancestors(r.pid) & wanted for r in job.ranks)


def _ancestors(pid: int) -> set[int]:
    import psutil

    try:
        return {p.pid for p in psutil.Process(pid).parents()}
    except psutil.Error:
        return set()
