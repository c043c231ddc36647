"""Where no cause fits, the incident still says what is known, and what would tell more."""

from __future__ import annotations

import msgspec
import pytest

from corpus.catalogue import load_capture, load_catalogue
from hangwatch.causes.rules.unknown import unknown
from hangwatch.diagnosis.registry import explain
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Gap


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


def test_what_was_seen_of_the_rank_is_evidence() -> None:
    """Whether it moves, and in which call it is: so a reader sees which of the known causes it cannot be."""
    first = explain(diagnose(_capture("come-again-in-an-hour")).case)[0]
    assert first.cause == "unknown"
    said = [e.says for e in first.evidence]
    assert any("same frames" in one for one in said)
    assert any("in clock_nanosleep()" in one for one in said)


def test_a_process_that_is_not_seen_is_not_said_to_be_lost() -> None:
    """It is no rank of the job, and nothing shows that it has ended."""
    says = [e.says for e in explain(diagnose(_capture("wind-that-nobody-has-measured")).case)[0].evidence]
    assert "not peer-world-lost: no process of the group is known to have ended or failed" in says


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
