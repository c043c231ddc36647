"""What the metrics show of a watch, and how the sources' health is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.progress import read_progress
from hangwatch.model.text import format_members
from hangwatch.sources.stacks import permission
from hangwatch.sources.stacks.permission import check_stacks


@pytest.mark.parametrize(
    ("group", "label"),
    [
        (BeatGroup("0", (0, 1, 2, 3), description="default_pg"), "default_pg"),
        (BeatGroup("1", (0, 1, 2, 3), description="undefined"), "group 1"),
        (BeatGroup("2", (0, 1), description="mesh_tp"), "mesh_tp [0-1]"),
        (BeatGroup("2", (2, 3), description="mesh_tp"), "mesh_tp [2-3]"),
        (BeatGroup("3", (1, 3), description="mesh_dp"), "mesh_dp [1,3]"),
        (BeatGroup("4", (), description="mesh_dp"), "mesh_dp"),
    ],
)
def test_groups_of_one_name_are_distinguished_by_their_ranks(group: BeatGroup, label: str) -> None:
    """A group of every rank keeps its bare name; others carry their ranks, so that no front is taken over two groups."""
    progress = read_progress(0, Beat(1, 5, 1, 1, 0, groups=(group,)), 0, 4)
    assert [one.label for one in progress.groups] == [label]


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=200), st.sets(st.integers(0, 5000), min_size=1, max_size=200))
def test_members_are_short_and_differ_where_the_groups_do(one: set[int], other: set[int]) -> None:
    """However many ranks a group has, its name is short, and another group's is another."""
    texts = format_members(sorted(one)), format_members(sorted(other))
    assert all(len(text) <= 48 for text in texts)
    assert (texts[0] == texts[1]) == (one == other)


def test_strided_groups_are_written_as_in_a_crontab() -> None:
    """Data-parallel groups across model replicas are strided, and stay readable."""
    assert format_members(range(1, 4096, 8)) == "1-4089/8"


def test_the_health_of_a_source_is_what_its_last_reading_saw() -> None:
    """It is down only while that saw nothing; reads and failures add up; a reading of nothing leaves no trace."""
    health = SourceHealth()
    for tried, failed in ((8, 0), (8, 8), (0, 0)):
        with health.reading("stacks") as reading:
            reading.tried, reading.failed = tried, failed
    (stacks,) = health.metrics()
    assert (stacks.name, stacks.up, stacks.reads_total, stacks.failures_total) == ("stacks", False, 16, 8)
    with health.reading("stacks") as reading:
        reading.tried, reading.failed = 8, 7
    assert health.metrics()[0].up


@pytest.mark.usefixtures("real")
def test_a_process_of_ours_may_be_read() -> None:
    """Nothing is said against a living process of the same user, nor of one that is gone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert check_stacks([child.pid]) == {}
    finally:
        child.communicate(b"\n")
    assert check_stacks([child.pid]) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read this process")
@pytest.mark.usefixtures("real")
def test_a_process_that_may_not_be_read_is_found_before_a_hang() -> None:
    """Without permission the reason and the repair are known as soon as the rank is."""
    code = (
        "import os, sys\n"
        "from hangwatch.sources.stacks import permission\n"
        "permission.find_program = lambda name: name  # where it is installed this user may not be able to look\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "(gap,) = permission.check_stacks([int(sys.argv[1])]).values()\n"
        "print(gap.source, '|', gap.reason, '|', gap.hint)"
    )
    root = Path(permission.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(os.getpid())], env=environment, capture_output=True, text=True, check=True
    )
    source, reason, hint = done.stdout.strip().split(" | ")
    assert (source, reason) == ("stacks", f"reading process {os.getpid()} is not permitted")
    assert hint


def test_a_missing_pyspy_is_said_of_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without py-spy no stack can be read, and that too is known before a hang."""
    monkeypatch.setattr(permission, "find_program", lambda _name: None)
    assert {gap.hint for gap in check_stacks([1, 2]).values()} == {"pip install py-spy"}
