"""The live page: what its search field finds, ranks of other nodes, and that what is wrong comes first."""

from __future__ import annotations

import re

import msgspec
import pytest
from examples import hang_incident

from hangwatch.model.incident import RankEntry
from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront
from hangwatch.outputs.html.group_progress import render_group_progress
from hangwatch.outputs.html.live import job_key, render_parts
from hangwatch.outputs.html.search import Matches, find, parse_ranks, render_found

#: Two nodes whose names begin alike, and a rank of another world; nobody has seen ranks 4 to 7.
_RANKS = (
    *(LiveRank(rank, "gpu-1" if rank < 2 else "gpu-17", 100 + rank, "running") for rank in range(4)),
    LiveRank(1_000_001_000_000, "gpu-17", 200, "busy", name="engine/0"),
)
_GROUPS = (
    GroupFront("default_pg", tuple(range(8)), 9, 9, 9),
    GroupFront("tp [0-1]", (0, 1), 3, 3, 3),
    GroupFront("tp [2-3]", (2, 3), 3, 3, 3),
)
_JOB = LiveJob("job", 8, ranks=_RANKS, groups=_GROUPS)


def _on_node_1() -> LiveJob:
    """The hang of two ranks on two nodes, as the agent of rank 1's node has it."""
    incident = hang_incident()
    (one, other) = incident.ranks
    ranks = (msgspec.structs.replace(one, node="gpu-16"), msgspec.structs.replace(other, state="lost"))
    incident = msgspec.structs.replace(incident, ranks=ranks)
    return LiveJob("job", 2, ranks=(LiveRank(1, "gpu-17", 4101, "stuck"),), incident=incident)


@pytest.mark.parametrize(
    ("query", "ranks"),
    [
        ("5", {5}),
        ("5,9", {5, 9}),
        ("5, 9", {5, 9}),
        ("40-42", {40, 41, 42}),
        ("rank 3", {3}),
        ("ranks 0-2,5", {0, 1, 2, 5}),
        ("40-", {40}),
        ("9-5", set()),
    ],
)
def test_ranks_are_read_as_the_page_writes_them(query: str, ranks: set[int]) -> None:
    """So what is copied from a verdict is found, and so is what is half typed."""
    spans = parse_ranks(query)
    assert spans is not None
    assert set().union(*spans) == ranks


@pytest.mark.parametrize("query", ["gpu-5", "-5", "5-x", "rank", "1e3", "tp [0-1]", ","])
def test_other_queries_are_names(query: str) -> None:
    """A group's name has numbers in it too."""
    assert parse_ranks(query) is None


@pytest.mark.parametrize(
    ("query", "ranks", "groups"),
    [
        ("1", {1}, ("default_pg", "tp [0-1]")),
        ("3,4", {3, 4}, ("default_pg", "tp [2-3]")),
        ("0-999999999999", set(range(8)), ("default_pg", "tp [0-1]", "tp [2-3]")),
        ("gpu-1", {0, 1}, ("default_pg", "tp [0-1]")),
        ("gpu-17", {2, 3, 1_000_001_000_000}, ("default_pg", "tp [2-3]")),
        ("GPU", {0, 1, 2, 3, 1_000_001_000_000}, ("default_pg", "tp [0-1]", "tp [2-3]")),
        ("tp [2-3]", {2, 3}, ("tp [2-3]",)),
        ("engine", {1_000_001_000_000}, ()),
        ("unknown", {4, 5, 6, 7}, ("default_pg",)),
        ("culprit", set(), ()),
        ("8", set(), ()),
    ],
)
def test_a_name_finds_ranks_and_groups(query: str, ranks: set[int], groups: tuple[str, ...]) -> None:
    """Ranks with the groups that they are in; groups with their ranks; no node whose name only begins so."""
    found = find(_JOB, query)
    assert found.ranks == ranks
    assert tuple(group.label for group in found.groups) == groups


def test_the_culprit_is_found_by_its_mark() -> None:
    """The page calls it so."""
    job = _on_node_1()
    assert job.incident is not None
    assert find(job, "culprit") == Matches(frozenset(job.incident.verdict.culprit_ranks), ())


def test_a_hang_shows_the_ranks_of_other_nodes() -> None:
    """As the incident has them; of its own node the agent knows more."""
    shown = render_parts(LiveView(1, (_on_node_1(),)), {}, ())[f"{job_key('job')}-ranks"]
    assert "unknown" not in shown
    assert "lost" not in shown
    found = render_found(LiveView(1, (_on_node_1(),)), "0-1")
    rows = [re.sub("<[^>]+>", " ", row).split() for row in re.findall("<tr>(.*?)</tr>", found)[1:]]
    assert [row[:5] for row in rows] == [
        ["0", "culprit", "waiting", "gpu-16", "4100"],
        ["1", "stuck", "gpu-17", "4101", "_sync_buffers"],
    ]


def test_an_incident_of_a_job_that_goes_on_says_nothing_of_other_nodes() -> None:
    """Their states are those of a moment that is over."""
    job = _on_node_1()
    assert job.incident is not None
    slow = msgspec.structs.replace(job.incident, verdict=msgspec.structs.replace(job.incident.verdict, kind="slow"))
    job = msgspec.structs.replace(job, incident=slow)
    assert find(job, "unknown").ranks == {0}
    assert set(job.known) == {1}


def test_what_is_wrong_comes_first() -> None:
    """Culprits, then by state; more than a table's worth are drawn, with the places of the others left empty."""
    incident = hang_incident()
    states = ("running", "waiting", "lost", "stuck", *["waiting"] * 96)
    ranks = tuple(LiveRank(rank, "n", rank, state) for rank, state in enumerate(states))
    entries: tuple[RankEntry, ...] = ()
    verdict = msgspec.structs.replace(incident.verdict, culprit_ranks=(1,))
    incident = msgspec.structs.replace(incident, ranks=entries, verdict=verdict)
    view = LiveView(1, (LiveJob("job", 100, ranks=ranks, incident=incident),))
    found = render_found(view, "0-4")
    assert re.findall(r"<tr><td>(?:<.*?></i>)?(\d+)", found) == ["1", "2", "3", "4", "0"]
    drawn = render_found(view, "waiting")
    assert "97 of 100 ranks" in drawn
    assert '<path class="s-other"' in drawn
    assert "s-running" not in drawn


def test_nothing_found_is_one_sentence() -> None:
    """With what was asked, which stays text."""
    found = render_found(LiveView(1, (_JOB,)), "<b>")
    assert re.sub("<[^>]+>", "", found) == "No rank, node, group or state matches &lt;b&gt;."


def test_of_many_groups_those_that_wait_have_a_chart() -> None:
    """The others are counted; in a job that is well the first twelve have one."""
    groups = tuple(GroupFront(f"tp [{n}]", (n,), 3, 3, 3, in_flight_s=0.1) for n in range(30))
    well = render_group_progress(groups, {})
    assert well.count("<article") == 12
    assert "18 more groups" in well
    hung = render_group_progress((GroupFront("dp", (0, 1), 4, 3, 3, (1,), 34.0), *groups), {})
    assert hung.count("<article") == 1
    assert "30 more groups" in hung
