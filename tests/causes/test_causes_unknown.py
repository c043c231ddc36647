"""Where no cause fits, the incident still says what is known, what spoke against the next causes, and what would tell more."""

from __future__ import annotations

import msgspec
import pytest

from corpus.catalogue import load_capture, load_catalogue
from hangwatch.causes.rules.job.unknown import unknown
from hangwatch.diagnosis.registry import explain
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Gap, RankCapture
from hangwatch.model.processes import ChildProcess


def _capture(name: str) -> Capture:
    (entry,) = load_catalogue([name])
    return load_capture(entry)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("polling-for-a-file", ("sleeps in", "time.sleep(5.0), in the loop `while not path.exists():`")),
        (
            "poll-that-is-counted-often",
            ("in the loop `for attempt in range(100_000):`", "under `if dist.get_rank() == 1:`"),
        ),
    ],
)
def test_what_is_known_is_one_sentence(name: str, said: tuple[str, ...]) -> None:
    """The call, its line and function, the loop it is in and the condition it came by; and a command that would tell more."""
    match = unknown(diagnose(_capture(name)).case)
    assert all(part in match.says for part in said)
    assert match.says.endswith("`hangwatch dump --with-values` shows the values of its variables.")


def test_tasks_that_ray_has_not_started_are_listed() -> None:
    """With Ray's word for their state, by the capture of one that awaits a task which runs: that one's process is left out."""
    kept = _capture("marks-from-a-table-that-is-a-pipe")
    first, *others = (rank for rank in kept.ranks if not rank.identity.worldless)
    task = "mark_with_care (PENDING_NODE_ASSIGNMENT)"
    last = msgspec.structs.replace(first.processes[-1], server=None, tasks=(task,))
    first = msgspec.structs.replace(first, processes=(*first.processes[:-1], last))
    verdict = diagnose(msgspec.structs.replace(kept, ranks=(first, *others))).verdict
    assert verdict.culprit_ranks == (first.rank,)
    assert any(task in line for line in verdict.waits)
    assert verdict.cause is not None
    assert f"It waits for Ray tasks that are not done: {task}." in verdict.cause.explanation
    assert "`ray status`" in verdict.cause.explanation


def _near(name: str) -> list[str]:
    """What an incident says of causes that came near."""
    first = explain(diagnose(_capture(name)).case)[0]
    assert first.cause == "unknown"
    return [e.says for e in first.evidence if e.says.startswith("not ") and not e.says.startswith("not seen")]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        # It polls in a program's own loop: if it computed there, it would be a straggler. Others are listed beside it already.
        ("polling-for-a-file", {"straggler": "does not move and used 3% of a core over 1.8 s"}),
        (
            "pool-thread-asleep",
            {
                "blocked-io": "the main thread is in clock_nanosleep(), without a known file, pipe or connection",
                "busy-loop, straggler": "does not move and used 0% of a core over 0.6 s",
            },
        ),
        # A thread of its program is there: were the main one in a wait for a lock, that would be the first suspect.
        (
            "come-again-in-an-hour",
            {
                "straggler": "does not move and used 1% of a core over 1.9 s",
                "thread-stall": "the main thread is in clock_nanosleep(), which does not wait for a lock",
            },
        ),
        (
            "wind-that-nobody-has-measured",
            {"peer-world-lost": "no process of the group is known to have ended or failed"},
        ),
    ],
)
def test_causes_that_came_near_are_named_with_what_they_lack(name: str, near: dict[str, str]) -> None:
    """A line each. They are found by the rules themselves, and are not among the causes that the incident lists."""
    assert _near(name) == [f"not {causes}: {lacks}" for causes, lacks in near.items()]
    listed = {match.cause for match in explain(diagnose(_capture(name)).case)}
    assert listed.isdisjoint(cause for causes in near for cause in causes.split(", "))


def test_a_child_that_is_not_awaited_is_said_to_be_none() -> None:
    """It is there, and the rank is in another call."""
    capture = _capture("polling-for-a-file")
    child = ChildProcess(99, "gunzip", "S", 0.1)

    def with_child(one: RankCapture) -> RankCapture:
        processes = tuple(msgspec.structs.replace(p, children=(child,)) for p in one.processes)
        return msgspec.structs.replace(one, processes=processes)

    ranks = tuple(with_child(one) if one.rank == 2 else one for one in capture.ranks)
    first = explain(diagnose(msgspec.structs.replace(capture, ranks=ranks)).case)[0]
    lacks = "the main thread is in clock_nanosleep(), which does not wait for the child process 99 (gunzip)"
    assert f"not child-stall: {lacks}" in [e.says for e in first.evidence]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "store-key-nobody-sets",
            (
                "Ranks 1-2 wait for a store key that is not set, in fetch",
                "rank 0 is elsewhere, in main",
                "`hangwatch dump --with-values` shows the variables that make up the key",
            ),
        ),
        (
            "version-that-is-there-already",
            ("waits for a store key that is not set, in barrier", "`hangwatch dump --with-values`"),
        ),
        ("wind-that-nobody-has-measured", ("in meet", "`hangwatch dump` on its node")),
    ],
)
def test_where_no_rank_explains_it_the_sentence_says_where_they_wait_and_what_would_settle_it(
    name: str, parts: tuple[str, ...]
) -> None:
    """A key that nobody has set, a process that is not seen."""
    said = unknown(diagnose(_capture(name)).case).says
    assert all(part in said for part in parts)


def test_a_rank_without_a_stack_is_read_by_the_command_that_is_named() -> None:
    """It is known by its recorder only: what could not be read is what would have told more."""
    capture = _capture("polling-for-a-file")
    ranks = tuple(
        msgspec.structs.replace(one, stacks=(), processes=()) if one.rank == 2 else one for one in capture.ranks
    )
    case = diagnose(msgspec.structs.replace(capture, ranks=ranks)).case
    assert f"could not be read: `py-spy dump --pid {capture.ranks[2].identity.pid}` on its node" in unknown(case).says
    gap = Gap("stacks", "not permitted", 2, "run the agent as root")
    case = diagnose(msgspec.structs.replace(capture, ranks=ranks, gaps=(gap,))).case
    assert "could not be read: run the agent as root." in unknown(case).says


def test_the_repair_of_a_gap_is_what_settles_it() -> None:
    """Where something could not be read and there is a repair, that comes before any other command."""
    capture = _capture("polling-for-a-file")
    gap = Gap("flight recorder", "could not be read", 2, "set TORCH_FR_BUFFER_SIZE")
    match = unknown(diagnose(msgspec.structs.replace(capture, gaps=(gap,))).case)
    assert "set TORCH_FR_BUFFER_SIZE" in match.says
