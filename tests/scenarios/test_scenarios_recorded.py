"""The catalogue's hangs as they were captured: what the diagnosis makes of every one, and the bar over all."""

from __future__ import annotations

import random

import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from recorded import renamed
from replicas import enlarged, has_peers
from scenarios.catalogue import Entry, load_catalogue
from scenarios.recording import judge_again, load, path
from scenarios.tables import BAR, meets_bar, summarize

CATALOGUE = load_catalogue()
RECORDED = [entry for entry in CATALOGUE if path(entry).exists()]
#: So many ranks, about: the captures of tests/fixtures are made larger still (tests/causes/test_causes_scale.py).
ENLARGED = 24
#: Truths that are not met, and why. An entry that is met by now makes its test fail: take it out then.
BLAMED_WRONGLY = {
    "batch-without-counterpart": "whom a batch of sends and receives waits for is seen nowhere on Gloo",
    "ring-that-stops-early": "the same: of a ring it is not known who waits for whom",
}
NOT_SEEN = {
    "slot-never-given-back": "processes of mp.spawn that meet in a file are no ranks to anybody before they have met",
}


def _cases() -> list[object]:
    return [
        pytest.param(
            entry,
            id=entry.scenario.name,
            marks=[pytest.mark.xfail(strict=True, reason=BLAMED_WRONGLY[entry.scenario.name])]
            if entry.scenario.name in BLAMED_WRONGLY
            else [],
        )
        for entry in RECORDED
    ]


def test_the_catalogue_is_as_large_as_it_is_meant_to_be() -> None:
    """At least 60 hangs and 20 controls, and a capture of every hang that can run without a GPU."""
    hangs = [entry for entry in CATALOGUE if entry.scenario.truth is not None]
    assert len(hangs) >= 60
    assert len(CATALOGUE) - len(hangs) >= 20
    wanted = [e for e in hangs if not e.scenario.gpu]
    missing = {e.scenario.name for e in wanted if not path(e).exists()}
    assert missing == set(NOT_SEEN)


@pytest.mark.parametrize("entry", _cases())
def test_no_recorded_hang_is_blamed_on_the_wrong_rank(entry: Entry) -> None:
    """A wrong culprit is worse than an unknown one, and a wrong proof is worse still."""
    row = judge_again(entry)
    assert not row.wrong_proof, row.wrong
    assert row.culprits_right, row.wrong


def _by_position(capture: Capture) -> bool:
    """Whether ranks wait for their neighbours in a pipeline: with other numbers they have other neighbours."""
    frames = (f for rank in capture.ranks for stack in rank.stacks for t in stack.threads for f in t.frames)
    return any("torch/distributed/pipelining/" in f.file or "deepspeed/runtime/pipe/" in f.file for f in frames)


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: entry.scenario.name)
def test_no_verdict_depends_on_the_numbers_of_ranks(entry: Entry) -> None:
    """The same hang with ranks numbered the other way round, and at random: the same verdict of the same processes."""
    capture = load(entry)
    before = diagnose(capture).verdict
    named = {*before.culprit_ranks, *before.waiting_ranks, *(rank.rank for rank in capture.ranks)}
    world = max(capture.job.world_size or 0, 1 + max(named))
    if _by_position(capture):
        return
    shuffled = random.Random(entry.scenario.name).sample(range(world), world)
    for order in (list(reversed(range(world))), shuffled):
        after = diagnose(renamed(capture, dict(enumerate(order)))).verdict
        assert (after.kind, after.proven) == (before.kind, before.proven)
        assert set(after.culprit_ranks) == {order[r] for r in before.culprit_ranks}
        assert set(after.waiting_ranks) == {order[r] for r in before.waiting_ranks}
        causes = [(v.cause.id, v.cause.confidence) if v.cause is not None else None for v in (before, after)]
        assert causes[0] == causes[1]


#: A copy of a sender has no receiver, and a straggler is one among many.
LARGER = [e for e in RECORDED if not has_peers(load(e)) and not _by_position(load(e))]


@pytest.mark.parametrize("entry", LARGER, ids=lambda entry: entry.scenario.name)
def test_no_verdict_depends_on_the_size_of_the_job(entry: Entry) -> None:
    """The same hang in a job several times as large, every rank copied: every copy of a culprit is one, and no other rank."""
    capture = load(entry)
    before = diagnose(capture).verdict
    world = capture.job.world_size or 0
    named = {*before.culprit_ranks, *before.waiting_ranks, *(rank.rank for rank in capture.ranks)}
    if before.kind in {"healthy", "straggler"} or max(named) >= world:
        return
    times = ENLARGED // world
    copies = {rank: [rank + i * world for i in range(times)] for rank in range(world)}
    after = diagnose(enlarged(capture, copies)).verdict
    assert (after.kind, after.proven) == (before.kind, before.proven)
    assert set(after.culprit_ranks) == {new for rank in before.culprit_ranks for new in copies[rank]}
    assert set(after.waiting_ranks) == {new for rank in before.waiting_ranks for new in copies[rank]}
    assert (after.cause.id if after.cause else None) == (before.cause.id if before.cause else None)


def test_the_bar_is_met_on_all_recorded_hangs() -> None:
    """The shares that the project asks of itself."""
    rows = [judge_again(entry) for entry in RECORDED]
    figures = summarize(RECORDED, rows, [], {}).figures
    assert meets_bar(figures), (BAR, figures, [(row.name, row.wrong) for row in rows if not row.good])
