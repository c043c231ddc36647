"""The table of ``hangwatch status``: what it shows, how it fits, and that a job's text does no harm."""

from __future__ import annotations

import io

import msgspec
import pytest
from examples import hang_incident

from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.rank_table import render_view


def printed(view: LiveView, *, height: int | None = None, width: int = 160, colour: bool = False) -> str:
    """What a console shows."""
    console = Console(io.StringIO(), width=width, colour=colour)
    shown = render_view(view, height=height, width=width)
    console.print(shown)
    assert isinstance(console.stream, io.StringIO)
    return console.stream.getvalue()


def view_of(count: int, late: int, name: str = "dp") -> LiveView:
    """A job of ``count`` ranks of which one is three operations behind."""
    ranks = tuple(
        LiveRank(r, "n", 100 + r, "running" if r == late else "communicating", 0.1,
                 (LiveProgress(name, name, (), 9 - 3 * (r == late), 6, None if r == late else 7.5),), f"f{r} (a.py:{r})")
        for r in range(count)
    )  # fmt: skip
    front = GroupFront(name, tuple(range(count)), 9, 6, 6, (late,), 7.5)
    return LiveView(1, (LiveJob(name, count, "torchrun", "", ranks, (front,)),))


def test_a_row_says_where_a_rank_stands() -> None:
    """State, group, numbers, how far behind, for how long in flight, and its top frame; the job's line says who is behind."""
    lines = printed(view_of(2, 1)).splitlines()
    assert lines[:2] == ["job dp (torchrun, 2 of 2 ranks here)", "dp: rank 1 behind; the rank furthest ahead is at 9"]
    assert lines[2].split() == [
        "RANK",
        "PID",
        "STATE",
        "GROUP",
        "SEQ",
        "DONE",
        "BEHIND",
        "IN",
        "FLIGHT",
        "TOP",
        "FRAME",
    ]
    assert lines[3].split() == ["0", "100", "communicating", "dp", "9", "6", "0", "7.5", "s", "f0", "(a.py:0)"]
    assert lines[4].split() == ["1", "101", "running", "dp", "6", "6", "3", "f1", "(a.py:1)"]


def test_a_job_says_when_a_stall_would_be_reported() -> None:
    """And why then, and for how long it has waited; without an agent, which alone knows the time, it says nothing."""
    (job,) = view_of(2, 1).jobs
    told = msgspec.structs.replace(job, stall_after_s=130.0, stall_why="the minimum")
    said = "a stall would be reported after 2 min 10 s (the minimum)"
    assert f"waiting for 7.5 s; {said}" in printed(LiveView(1, (told,))).splitlines()
    calm = msgspec.structs.replace(told, groups=tuple(msgspec.structs.replace(g, in_flight_s=1.0) for g in job.groups))
    assert said in printed(LiveView(1, (calm,))).splitlines()
    assert "would be reported" not in printed(LiveView(1, (job,)))


@pytest.mark.parametrize("height", [10, 24, 60])
def test_a_table_fits_its_terminal_and_keeps_who_is_behind(height: int) -> None:
    """Of 256 ranks those to look at are shown, and how many are not."""
    lines = printed(view_of(256, 200), height=height).splitlines()
    assert len(lines) <= height
    assert any(line.split()[:2] == ["200", "300"] for line in lines)
    assert "more rows" in lines[-1]
    assert "more rows" not in printed(view_of(256, 200))


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_narrow_terminal_keeps_every_number_and_the_group(width: int) -> None:
    """No line is wider than the terminal, the rank and its numbers are whole, and what gives way is the frame, then the pid."""
    job = view_of(128, 100, "default_pg").jobs[0]
    ranks = tuple(
        msgspec.structs.replace(rank, pid=4_000_000 + rank.rank, frame="all_reduce (torch/distributed_c10d.py:3252)")
        for rank in job.ranks
    )
    job = msgspec.structs.replace(job, id="a4b33e53-f60e-4069-8782-199ab10ec4f9", ranks=ranks)
    lines = printed(LiveView(1, (job,)), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == 3 + 128
    (late,) = (line for line in lines if line.lstrip().startswith("100 "))
    assert "default_pg" in late
    assert late.split("default_pg")[1].split()[:3] == ["6", "6", "3"]
    assert ("4000100" in late) == (width >= 80)
    assert ("all_reduce" in late) == (width >= 80)


def test_an_open_incident_is_above_the_table_and_its_culprits_are_marked() -> None:
    """The verdict, its cause and the incident's id; the culprit's row says so, and is kept where rows have to go."""
    job = view_of(256, 200).jobs[0]
    incident = hang_incident()
    verdict = msgspec.structs.replace(incident.verdict, culprit_ranks=(7,))
    view = LiveView(1, (msgspec.structs.replace(job, incident=msgspec.structs.replace(incident, verdict=verdict)),))
    for width in (80, 160):
        lines = printed(view, height=20, width=width).splitlines()
        assert len(lines) <= 20
        text = " ".join(" ".join(lines).split())
        assert f"DEADLOCK, proven: {verdict.summary}" in text
        assert "hangwatch explain tuple-labels-gather" in text
        assert incident.id in text
        assert [line.split()[0] for line in lines if "culprit " in line and "communicating" in line] == ["7"]


def test_no_colour_without_a_terminal() -> None:
    """A pipe gets plain text, a terminal colours."""
    assert "\x1b" not in printed(view_of(2, 1))
    assert "\x1b[" in printed(view_of(2, 1), colour=True)


@pytest.mark.parametrize(
    "name", ["\x1b[2J\x1b]0;x\x07", "a\nb\r\n", "\u202eabc", "[bold red]x[/]", "x" * 100_000, "<b>"]
)
def test_a_name_does_no_harm(name: str) -> None:
    """Escapes, breaks, reordering and markup are shown as text, a long name is cut, and a row stays a row."""
    shown = printed(view_of(2, 1, name))
    assert not set(shown) & {"\x1b", "\x07", "\r", "\u202e"}
    assert len(shown.splitlines()) <= 8
    if "[bold" in name:
        assert "[bold red]" in shown


def test_nothing_to_show_is_a_sentence() -> None:
    """No job, and why that may be."""
    console = Console(io.StringIO(), width=80)
    console.print(render_view(LiveView(1), ("processes: not readable",)))
    assert isinstance(console.stream, io.StringIO)
    assert console.stream.getvalue() == "No ranks of a distributed job found on this node.\nprocesses: not readable\n"
