"""What a picture may be taken for is named beside the first cause, where the picture allows it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from corpus.catalogue import load_capture, load_catalogue
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Cause
from hangwatch.model.processes import ChildProcess
from hangwatch.model.stacks import Frame
from recorded import load, without_source
from worlds import collective_frames, operation, rank, world

GROUP = Group("0", (0, 1), "default_pg")
CHILD = ChildProcess(77, "loader", "S", 0.5)


def _of(scenario: str) -> Capture:
    """The kept capture of a scenario."""
    (entry,) = load_catalogue([scenario])
    return load_capture(entry)


def _causes(capture: Capture) -> list[Cause]:
    """What is said of a recorded hang, the surest first."""
    verdict = diagnose(capture).verdict
    return [cause for cause in (verdict.cause, *verdict.alternatives) if cause is not None]


@pytest.mark.parametrize("name", ["rank_conditional", "group_order", "p2p", "killed", "tuple_labels"])
def test_what_is_decided_has_none(name: str) -> None:
    """A condition that speaks of the rank, a cycle of groups, a rank that died: nothing else looks like it."""
    assert not any(cause.explanation.startswith("Perhaps") for cause in _causes(load(name)))


def test_data_that_ended_needs_a_loop() -> None:
    """Without the source no loop is known, and nothing is said of what one would do."""
    capture = _of("good-enough-for-one")
    blind = [replace(r, stacks=tuple(map(without_source, r.stacks)), flight=None) for r in capture.ranks]
    said = {cause.id: cause.explanation for cause in _causes(replace(capture, ranks=tuple(blind)))}
    assert "because of a condition" in said["ranks-diverged"]
    assert "iterations" not in said["ranks-diverged"]


@pytest.mark.parametrize(
    ("scenario", "first", "beside", "why"),
    [
        ("good-enough-for-one", "early-exit", "ranks-diverged", "had fewer iterations of `for "),
        ("feeder-has-returned", "thread-stall", "rank-raised", "ended the thread that rank"),
        ("future-within-a-future", "thread-stall", "lock-deadlock", "needs something that the main thread holds"),
        ("polling-for-a-file", "unknown", "blocked-io", "polls for something"),
        ("fsdp2-norm-on-rank0", "ranks-diverged", "checkpoint-on-some-ranks", "gathers whole parameters"),
        ("early-exit-in-atexit", "early-exit", "rank-raised", "no traceback was found"),
        ("joined-before-it-was-heard", "child-stall", "rank0-work", "only one rank has to do"),
    ],
)
def test_an_alternative_says_what_would_have_happened(scenario: str, first: str, beside: str, why: str) -> None:
    """It is less sure than the first, and tells by what the two would differ."""
    found = _causes(_of(scenario))
    reported = {cause.id: cause for cause in found[1:]}
    assert found[0].id == first
    assert beside in reported
    assert why in reported[beside].explanation
    assert reported[beside].confidence < found[0].confidence


@pytest.mark.parametrize("scenario", ["lock-taken-twice", "blocked-on-a-full-pipe", "early-exit-with-status-zero"])
def test_what_the_picture_excludes_is_not_named(scenario: str) -> None:
    """A pipe is no lock file, a lock is no data, a rank that has ended with 0 has not failed."""
    excluded = {
        "lock-taken-twice": {"dataloader-stall", "rank-raised", "blocked-io"},
        "blocked-on-a-full-pipe": {"lock-deadlock", "dataloader-stall"},
        "early-exit-with-status-zero": {"rank-raised"},
    }
    assert excluded[scenario].isdisjoint(cause.id for cause in _causes(_of(scenario)))


def test_an_event_loop_with_nothing_to_do_waits_for_a_task() -> None:
    """It differs from one that watches a connection, which may yet speak."""
    idle, *beside = _causes(_of("asyncio-task-failed-unheard"))
    assert idle.id == "thread-stall"
    assert "event loop" in idle.explanation
    assert "rank-raised" in {cause.id for cause in beside}
    assert _causes(_of("coordinator-does-not-answer"))[0].id == "blocked-io"


@pytest.mark.parametrize(("children", "cause"), [((), "unknown"), ((CHILD,), "child-stall")])
def test_an_event_among_processes_needs_a_child_to_be_set_by_one(
    children: tuple[ChildProcess, ...], cause: str
) -> None:
    """Without any it may be another rank that was to set it."""
    waits = (
        Frame("Event.wait", "/usr/lib/python3.11/multiprocessing/synchronize.py", 349),
        Frame("main", "/srv/train/train.py", 40, "loaded.wait()"),
        Frame("<module>", "/srv/train/train.py", 90),
    )
    held = rank(1, (), waits)
    held = replace(held, processes=tuple(replace(p, children=children) for p in held.processes))
    others = rank(0, (operation(1, GROUP, 1, done=False),), collective_frames("all_reduce"))
    found = diagnose(world(others, held)).verdict.cause
    assert found is not None
    assert found.id == cause
