"""Answers from what runs on this node now: jobs, the stack of a process, doctor. Only reads; nothing is stopped or paused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import psutil

from hangwatch.agent.capturing.redact import hide_in, secret_values
from hangwatch.assistant.answers import (
    CheckAnswer,
    DoctorAnswer,
    GroupLine,
    JobLine,
    JobPage,
    RankLine,
    RankPage,
    StackAnswer,
)
from hangwatch.assistant.paging import groups_first, label, line, lines, page, ranks
from hangwatch.assistant.stacks import describe_sample
from hangwatch.doctor.checks import run_checks
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.errors import UserError
from hangwatch.model.live import LiveJob, LiveRank
from hangwatch.outputs.archive import Archive
from hangwatch.sources.node_view import NodeObserver, discover_node
from hangwatch.sources.stacks.samples import sample_stacks

_GROUPS = 5
#: Doctor listens for a moment where no process does.
_ANY_PORT = "127.0.0.1:0"


def list_jobs(state_dir: Path, offset: int, limit: int) -> JobPage:
    """Return every job on this node, with its open incident."""
    view, gaps = NodeObserver().view()
    opened = {one.job: one.id for one in reversed(Archive(state_dir).list()) if one.open}
    shown, following = page(view.jobs, offset, limit)
    return JobPage(
        tuple(_job(job, opened.get(job.id)) for job in shown), len(view.jobs), following, lines(gaps[:_GROUPS])
    )


def _job(job: LiveJob, incident: str | None) -> JobLine:
    states: dict[str, list[int]] = {}
    for rank in job.ranks:
        states.setdefault(rank.state, []).append(rank.rank)
    return JobLine(
        job=line(job.id),
        launcher=job.launcher,
        command=line(job.command),
        world_size=job.world_size,
        ranks_here=len(job.ranks),
        states=tuple(f"{state}: {ranks(numbers)}" for state, numbers in sorted(states.items())),
        groups=tuple(
            GroupLine(
                group=label(front.label),
                front=front.front,
                completed=front.completed,
                behind=ranks(front.behind),
                in_flight_s=round(front.in_flight_s, 1) if front.in_flight_s is not None else None,
            )
            for front in job.groups[:_GROUPS]
        ),
        open_incident=incident,
    )


def list_ranks_now(job: str, offset: int, limit: int) -> RankPage:
    """Return the current ranks of a job. Raises ``UserError``."""
    view, _ = NodeObserver().view()
    found = next((one for one in view.jobs if one.id == job), None)
    if found is None:
        there = ", ".join(one.id for one in view.jobs) or "none"
        raise UserError(f"no job {job!r} runs on this node; those that do: {there}")
    entries = sorted(found.ranks, key=lambda one: one.rank)
    shown, following = page(entries, offset, limit)
    return RankPage(job, tuple(_rank(one) for one in shown), len(entries), following)


def _rank(rank: LiveRank) -> RankLine:
    shown = groups_first(rank.groups, lambda one: one.enqueued != one.completed)
    progress = (f"{label(one.label)}: enqueued {one.enqueued}, completed {one.completed}" for one in shown)
    top = line(rank.frame or "")
    return RankLine(rank.rank, line(rank.name), line(rank.node), rank.pid, rank.state, top, lines(progress))


def stack_of_process(pid: int) -> StackAnswer:
    """Return the stack of a rank on this node, or of a process below one, read without pausing it.

    Raises ``UserError`` for any other process: this is no debugger for arbitrary processes.
    """
    owner = _find_owner(pid)
    own = msgspec.structs.replace(owner, pid=pid, start_time=_start_time(pid))
    sample = asyncio.run(sample_stacks([pid]))[pid]
    if isinstance(sample, Gap):
        raise UserError(str(sample))
    return describe_sample(hide_in(sample, secret_values([owner, own])), own)


def _find_owner(pid: int) -> RankIdentity:
    """Return the rank that a process is, or descends from."""
    found, _ = discover_node()
    known = {identity.pid: identity for job in found.jobs for identity in job.ranks}
    try:
        above = [parent.pid for parent in psutil.Process(pid).parents()]
    except (psutil.Error, ValueError, OverflowError):
        raise UserError(f"there is no process {pid} on this node that may be read") from None
    for one in (pid, *above):
        if one in known:
            return known[one]
    raise UserError(
        f"process {pid} is no rank of a distributed job, nor below one; list_jobs shows the jobs on this node"
    )


def _start_time(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        raise UserError(f"process {pid} has ended") from None


def doctor(state_dir: Path) -> DoctorAnswer:
    """Return the checks of ``hangwatch doctor``."""
    checks = run_checks(state_dir, _ANY_PORT)
    return DoctorAnswer(
        works=not any(check.state == "failed" for check in checks),
        problems=tuple(
            CheckAnswer(line(c.name), c.state, line(c.says), line(c.repair)) for c in checks if c.state != "ok"
        ),
        fine=tuple(line(check.name) for check in checks if check.state == "ok"),
    )
