"""When a hang may be acted on, by the captures since it was reported."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from bundles_on_disk import make_bundle, recorded_capture
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.job.second_look import Look, SecondLooking, Stand, describe_stand, look_at
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import SecondLook
from hangwatch.outputs.second_look import describe_second_look

#: A stall that had to last 90 s: rank 0 waits for rank 1 in the fifth operation of a group.
STALL = Look("stall", False, 90.0, (1,), frozenset({0, 1}), {0: ("world", False, 5)})
PROVEN = replace(STALL, kind="deadlock", proven=True, lasted_s=0.0)
MOVES = replace(STALL, kind="straggler")
HEALTHY = replace(STALL, kind="healthy", culprits=())
#: Another rank moved on to the next operation; another rank is to blame.
FURTHER = replace(STALL, in_flight={0: ("world", False, 6)})
OTHER = replace(STALL, culprits=(0,))


def stands(*looks: tuple[float, Look], act_after_s: float | None = None) -> list[Stand]:
    """How it stands after each capture, by the time of each."""
    looking = SecondLooking(act_after_s)
    return [looking.take(look, at_s) for at_s, look in looks]


def test_what_is_not_proven_is_acted_on_after_as_long_again() -> None:
    """The report is the first capture; the action comes with the first one after twice the patience."""
    first, second, third = stands((0.0, STALL), (60.0, STALL), (90.0, STALL))
    assert first == Stand(in_s=90.0, begun=True)
    assert second == Stand(in_s=30.0)
    assert third.act


def test_a_minute_is_the_least() -> None:
    """However short the patience, and however short what is reported at once has lasted."""
    for lasted_s in (0.0, 6.0):
        brief = replace(STALL, lasted_s=lasted_s)
        assert [one.act for one in stands((0.0, brief), (59.0, brief), (60.0, brief))] == [False, False, True]


def test_the_user_may_set_it() -> None:
    """``--act-after``."""
    assert [one.act for one in stands((0.0, STALL), (4.0, STALL), (5.0, STALL), act_after_s=5.0)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("act_after_s", [None, 3600.0])
def test_a_proof_needs_one_more_capture(act_after_s: float | None) -> None:
    """Whenever that comes, whatever the user has set."""
    assert [one.act for one in stands((0.0, PROVEN), (0.1, PROVEN), act_after_s=act_after_s)] == [False, True]


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (MOVES, "the culprit moves, or may move"),
        (HEALTHY, "the last capture shows no hang"),
        (FURTHER, "rank 0 moved"),
        (OTHER, "the last capture shows another hang"),
        (PROVEN, "the last capture shows another hang"),
    ],
)
def test_a_capture_that_disagrees_lets_it_begin_anew(look: Look, why: str) -> None:
    """It says why; what had agreed by then counts no more."""
    *_, last, after, before, due = stands(
        (0.0, STALL), (50.0, STALL), (89.0, look), (90.0, STALL), (179.0, STALL), (180.0, STALL)
    )
    assert (last.act, last.why) == (False, why)
    assert after.begun
    assert (before.act, due.act) == (False, True)


def test_a_proof_that_is_lost_is_no_proof() -> None:
    """What is seen is a stall then, and has to last as one."""
    assert [one.act for one in stands((0.0, PROVEN), (1.0, STALL), (2.0, STALL))] == [False, False, False]


def test_a_rank_that_was_not_seen_has_not_moved() -> None:
    """A node that is slow to answer says nothing; nor does a rank that is not concerned."""
    unseen = replace(STALL, in_flight={})
    beside = replace(STALL, in_flight={0: ("world", False, 5), 7: ("other", False, 9)})
    assert stands((0.0, STALL), (45.0, unseen), (90.0, beside))[-1].act


@given(st.lists(st.sampled_from([STALL, MOVES, HEALTHY, FURTHER, OTHER]), max_size=40), st.floats(1.0, 30.0))
def test_it_is_never_acted_on_unless_all_have_agreed_for_so_long(looks: list[Look], spacing_s: float) -> None:
    """Whatever the captures show, and in whatever order."""
    taken = [(spacing_s * number, look) for number, look in enumerate(looks)]
    for number, stand in enumerate(stands(*taken)):
        if stand.act:
            at_s, look = taken[number]
            since = [other for when_s, other in taken[: number + 1] if when_s >= at_s - look.lasted_s]
            assert look.kind == "stall"
            assert all(other == look for other in since)
            assert at_s >= look.lasted_s


def test_a_diagnosis_is_looked_at() -> None:
    """Of a recorded deadlock: proven, and by the waits; the same capture agrees with itself."""
    look = look_at(diagnose(recorded_capture()))
    assert (look.kind, look.proven) == ("deadlock", True)
    assert look.in_flight.keys() == look.concerned
    assert look.why_not(look) == ""


def test_the_incident_says_when_and_what_calls_it_off() -> None:
    """From the report to the action, and where it is called off in between."""
    reported = describe_stand(Stand(in_s=90.0, begun=True), None, 0, STALL, "end the job")
    assert (reported.until, reported.passed) == ("1970-01-01T00:01:30.000Z", False)
    assert describe_stand(Stand(in_s=30.0), reported, 60 * 10**9, STALL, "end the job") == reported
    off = describe_stand(Stand(why="rank 0 moved"), reported, 60 * 10**9, MOVES, "end the job")
    assert (off.until, off.called_off) == ("", "rank 0 moved")
    assert describe_stand(Stand(why="the culprit moves"), off, 70 * 10**9, MOVES, "end the job") == off
    again = describe_stand(Stand(in_s=90.0, begun=True), off, 90 * 10**9, STALL, "end the job")
    assert (again.until, again.called_off) == ("1970-01-01T00:03:00.000Z", "rank 0 moved")
    assert describe_stand(Stand(act=True, in_s=0.0), again, 180 * 10**9, STALL, "end the job").passed


@pytest.mark.parametrize(
    ("look", "ended", "says"),
    [
        (SecondLook("", ""), False, ""),
        (
            SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", "end the job"),
            False,
            "hangwatch will end the job at 21:01:30 UTC, unless a rank moves.",
        ),
        (
            SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", "end the job", "rank 0 moved"),
            False,
            "hangwatch will end the job at 21:01:30 UTC, unless a rank moves (rank 0 moved).",
        ),
        (
            SecondLook("", "a rank moves", "end the job", "rank 0 moved"),
            False,
            "hangwatch does not end the job: rank 0 moved. It goes on looking.",
        ),
        (
            SecondLook("", "", "end the job", "anybody could have written it"),
            False,
            "hangwatch does not end the job: anybody could have written it.",
        ),
        (
            SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", "end the job"),
            True,
            "It ended before hangwatch acted.",
        ),
        (
            SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", "end the job", passed=True),
            True,
            "Confirmed by every capture until 21:01:30 UTC. What calls it off: a rank moves.",
        ),
    ],
)
def test_people_read_it_in_one_sentence(
    look: SecondLook, ended: bool, says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing where nothing is to be done."""
    incident, _ = make_bundle(tmp_path_factory.mktemp("state"), "one", ended=ended)
    assert describe_second_look(msgspec.structs.replace(incident, second_look=look)) == says
