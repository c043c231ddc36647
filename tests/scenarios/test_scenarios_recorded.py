"""The catalogue's hangs as they were captured: what the diagnosis makes of every one, and the bar over all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from corpus.catalogue import HOLDOUT, captured, in_core, load_capture, load_catalogue
from corpus.entries import Entry
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import HANG_KINDS, Verdict
from hangwatch.model.numbers import is_guest
from recorded import is_healthy_and_stuck, renamed, without
from replicas import enlarged, has_peers
from scenarios.judging import Judgement
from scenarios.recording import judge_again, sample, verdict_of
from scenarios.tables import BAR, meets_bar, summarize

CATALOGUE = load_catalogue()
RECORDED = captured(CATALOGUE)
#: Names of these are never shown: nobody is to mend a rule on one of them.
HELD_OUT = [entry for entry in RECORDED if entry.family in HOLDOUT]
#: Diagnosed after each change, all others in the tiers ``long`` and ``soak``.
CORE = [entry for entry in RECORDED if in_core(entry)]


def parted(one_in: int) -> tuple[list[Entry], list[Entry]]:
    """One capture in so many, for CI, and the others, for the tier ``soak``."""
    kept = sample(CATALOGUE, one_in)
    return [e for e in RECORDED if e.scenario.name in kept], [e for e in RECORDED if e.scenario.name not in kept]


TWENTIETH, OTHERS = parted(20)
#: So many ranks, about: the captures of tests/fixtures are made larger still (tests/causes/test_causes_scale.py).
ENLARGED = 24
#: Truths that are not met, and why. An entry that is met by now makes its test fail: take it out then.
BLAMED_WRONGLY = {
    "batch-without-counterpart": "whom a batch of sends and receives waits for is seen nowhere on Gloo",
    "ring-that-stops-early": "the same: of a ring it is not known who waits for whom",
    "robot-policy-server": "the server that the rank asks is named, which is in the circle too",
    "viewer-that-nobody-runs": "a request through a manager of multiprocessing is not followed",
    "wind-that-nobody-has-measured": "a world that met in a file, of which one process is a driver's thread's client, is unknown",
}
NOT_KEPT = {
    "no-spare-machine-for-the-ranker": "whoever waits for another world has the longest patience, longer than the run",
    "slot-never-given-back": "processes of mp.spawn that meet in a file are no ranks to anybody before they have met",
    "nccl-spectra-device-stopped": "how sure a verdict on hardware is cannot be measured on a simulated device",
    "field-ema-teacher": "the same",
    "night-long-docs": "what computes without end is given ten times the patience, longer than the run",
    "lab-imitation-demos": "the same",
    "news-wire-pages": "a server that never answers is named, in a warning for longer than the run",
    "desk-uid-clash": "a server that waits for requests may answer yet: a warning for longer than the run",
    "courtb-statute-lookup": "the same",
}

#: Hangs that are stragglers at their patience, and why.
CALLED_LATER = {
    "mirror-keeps-the-lock": "the rank that holds up the others has called an operation within the patience",
    "game-level-loader": "a DataLoader's worker computes without end, and what is ready to run may be at work",
}

#: What was right of the families of ``HOLDOUT`` when they were chosen.
HELD_OUT_BEFORE = {"culprits": 0.993, "cause_first": 0.972, "cause_in_three": 0.986}
#: Of the family ``nccl`` alone.
NCCL_BAR = {"culprits": 0.97, "cause_first": 0.92, "cause_in_three": 0.97}

each_part = pytest.mark.parametrize(
    "entries", [pytest.param(TWENTIETH, id="sample"), pytest.param(OTHERS, id="others", marks=pytest.mark.soak)]
)


@pytest.fixture(scope="module")
def judge() -> Callable[[Entry], Judgement]:
    """Judges a recorded hang. It is shared, so that one worker works each verdict out, once."""
    return judge_again


def test_the_catalogue_is_as_large_as_it_is_meant_to_be() -> None:
    """At least 60 hangs and 20 controls, and a capture of every hang that can run without a GPU."""
    hangs = [entry for entry in CATALOGUE if entry.scenario.truth is not None]
    assert len(hangs) >= 60
    assert len(CATALOGUE) - len(hangs) >= 20
    wanted = [e for e in hangs if not e.scenario.gpu]
    kept = {e.name for e in RECORDED}
    assert {e.name for e in wanted} - kept == set(NOT_KEPT)


@pytest.mark.usefixtures("long")
@each_part
def test_a_hang_is_called_one_when_its_patience_is_over(entries: Sequence[Entry]) -> None:
    """As the agent judges it, which may take what moves, or waits for another world, for a straggler for longer."""
    late = set()
    for entry in (one for one in entries if one.scenario.truth is not None):
        patience_s = entry.scenario.patience_s
        found = diagnose(load_capture(entry), patience=fixed_patience(patience_s))
        waited = found.waited_s is not None and found.waited_s >= patience_s
        if waited and found.verdict.kind not in HANG_KINDS and HANG_KINDS.issuperset(entry.scenario.truth.kinds):
            late.add(entry.scenario.name)
    assert late == {entry.scenario.name for entry in entries} & CALLED_LATER.keys()


@pytest.mark.usefixtures("long")
@each_part
def test_no_rank_of_a_healthy_job_waits_beside_a_stuck_one(entries: Sequence[Entry]) -> None:
    """Also if neither record nor beat tells of its collective: its stack does."""
    for entry in entries:
        capture = load_capture(entry)
        unrecorded = without(capture, {r.rank: frozenset({"flight", "progress"}) for r in capture.ranks})
        assert not any(is_healthy_and_stuck(diagnose(one)) for one in (capture, unrecorded))


@pytest.mark.parametrize("entry", CORE, ids=lambda entry: entry.name)
def test_no_hang_of_the_core_is_blamed_on_the_wrong_rank(
    entry: Entry, judge: Callable[[Entry], Judgement], request: pytest.FixtureRequest
) -> None:
    """A wrong culprit is worse than an unknown one, and a wrong proof is worse still."""
    if entry.name in BLAMED_WRONGLY:
        request.applymarker(pytest.mark.xfail(strict=True, reason=BLAMED_WRONGLY[entry.name]))
    row = judge(entry)
    assert not row.wrong_proof, row.wrong
    assert row.culprits_right, row.wrong


def test_the_bar_is_met_on_the_core(judge: Callable[[Entry], Judgement]) -> None:
    """The shares that the project asks of itself."""
    _assert_bar([judge(entry) for entry in CORE])


@pytest.mark.usefixtures("long")
@each_part
def test_the_bar_is_met_on_the_corpus(entries: Sequence[Entry], judge: Callable[[Entry], Judgement]) -> None:
    """And none is blamed on the wrong rank but those that are known."""
    rows = [judge(entry) for entry in entries if entry.family not in HOLDOUT]
    _assert_bar(rows)
    assert {row.name for row in rows if not row.culprits_right} == {row.name for row in rows} & BLAMED_WRONGLY.keys()


@pytest.mark.usefixtures("long")
def test_the_held_out_families_are_not_worse_than_they_were(judge: Callable[[Entry], Judgement]) -> None:
    """By more than a point, in whole hangs. Which of them are wrong is not said."""
    figures = summarize(HELD_OUT, [judge(entry) for entry in HELD_OUT], [], {}).figures
    lost = {name: round((share - getattr(figures, name)) * len(HELD_OUT)) for name, share in HELD_OUT_BEFORE.items()}
    assert max(lost.values()) <= round(len(HELD_OUT) / 100), lost
    assert figures.wrong_proofs == 0


@pytest.mark.usefixtures("long")
def test_the_bar_is_met_on_the_hangs_of_nccl_alone(judge: Callable[[Entry], Judgement]) -> None:
    """Hosts there run ahead of their devices, and a family of a hundred does not show in the shares of a thousand."""
    entries = [entry for entry in RECORDED if entry.family == "nccl"]
    assert len(entries) >= 100
    rows = [judge(entry) for entry in entries]
    figures = summarize(entries, rows, [], {}).figures
    shares = {name: getattr(figures, name) for name in NCCL_BAR}
    missed = [(row.name, row.wrong) for row in rows if not row.good]
    assert all(shares[name] >= share for name, share in NCCL_BAR.items()), (shares, missed)
    assert figures.wrong_proofs == 0, missed


def _assert_bar(rows: Sequence[Judgement]) -> None:
    entries = [entry for entry in RECORDED if entry.name in {row.name for row in rows}]
    figures = summarize(entries, rows, [], {}).figures
    assert meets_bar(figures), (BAR, figures, [(row.name, row.wrong) for row in rows if not row.good])


def _by_position(capture: Capture) -> bool:
    """Whether ranks wait for their neighbours in a pipeline: with other numbers they have other neighbours."""
    frames = (f for rank in capture.ranks for stack in rank.stacks for t in stack.threads for f in t.frames)
    return any("torch/distributed/pipelining/" in f.file or "deepspeed/runtime/pipe/" in f.file for f in frames)


class _Variant(NamedTuple):
    """The same hang otherwise: what was changed, and which ranks an old one has become."""

    what: str
    capture: Capture
    new: Mapping[int, Sequence[int]]


def _renumbered(entry: Entry) -> Iterator[_Variant]:
    """Ranks listed in another order, and with other numbers unless it is their number that tells them apart."""
    capture, before = load_capture(entry), verdict_of(entry)
    named = {*before.culprit_ranks, *before.waiting_ranks, *(rank.rank for rank in capture.ranks)}
    guests = {number: (number,) for number in named if is_guest(number)}
    # A group may have members that no process says it is.
    groups = {r for rank in capture.ranks for p in rank.progress or () for r in p.group.ranks}
    world = max(capture.job.world_size or 0, 1 + max((named | groups) - guests.keys()))
    orders = {"listed the other way round": list(range(world))}
    if not _by_position(capture):
        orders["numbered the other way round"] = list(reversed(range(world)))
        orders["numbered at random"] = random.Random(entry.scenario.name).sample(range(world), world)
    for what, order in orders.items():
        new = {old: (new,) for old, new in enumerate(order)} | guests
        yield _Variant(what, renamed(capture, {old: one for old, (one,) in new.items()}), new)


def _may_be_copied(entry: Entry) -> bool:
    """Whether more of each rank is the same hang: a copy of a sender has no receiver, a straggler is one of many."""
    capture, before = load_capture(entry), verdict_of(entry)
    named = {*before.culprit_ranks, *before.waiting_ranks, *(rank.rank for rank in capture.ranks)}
    alone = before.kind in {"healthy", "straggler"} or max(named) >= (capture.job.world_size or 0)
    return not (alone or has_peers(capture) or _by_position(capture))


def _copied(entry: Entry) -> _Variant:
    """Every rank copied, until there are as many as ``ENLARGED``."""
    capture = load_capture(entry)
    world = capture.job.world_size
    assert world is not None
    times = ENLARGED // world
    copies = {rank: [rank + i * world for i in range(times)] for rank in range(world)}
    return _Variant(f"each rank {times} times", enlarged(capture, copies), copies)


def _reported(verdict: Verdict, new: Mapping[int, Sequence[int]]) -> tuple[object, ...]:
    """What has to be the same of every variant, with the ranks that ``new`` makes of those it names."""
    culprits, waiting = ({rank for old in ranks for rank in new[old]} for ranks in _named(verdict))
    return verdict.kind, verdict.proven, culprits, waiting, verdict.cause.id if verdict.cause is not None else None


def _named(verdict: Verdict) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return verdict.culprit_ranks, verdict.waiting_ranks


def _confidence(verdict: Verdict) -> float | None:
    return verdict.cause.confidence if verdict.cause is not None else None


def _assert_same(entry: Entry, variant: _Variant) -> Verdict:
    after = diagnose(variant.capture).verdict
    itself = {rank: (rank,) for ranks in _named(after) for rank in ranks}
    assert _reported(after, itself) == _reported(verdict_of(entry), variant.new), variant.what
    return after


@pytest.mark.usefixtures("long", "judge")  # so that verdicts are worked out once
@pytest.mark.parametrize(
    "entry",
    [
        *(pytest.param(entry, id=entry.scenario.name) for entry in TWENTIETH),
        *(pytest.param(entry, id=entry.scenario.name, marks=pytest.mark.soak) for entry in OTHERS),
    ],
)
def test_no_verdict_depends_on_the_numbers_of_ranks_or_the_size_of_the_job(entry: Entry) -> None:
    """The same hang with ranks numbered otherwise, and in a job several times as large: the same of the same processes."""
    for variant in _renumbered(entry):
        assert _confidence(_assert_same(entry, variant)) == _confidence(verdict_of(entry)), variant.what
    if _may_be_copied(entry):
        _assert_same(entry, _copied(entry))


@pytest.mark.soak
def test_most_hangs_are_seen_in_a_larger_job() -> None:
    """Exceptions from being copied stay exceptions."""
    assert sum(map(_may_be_copied, RECORDED)) > 0.7 * len(RECORDED)


def test_a_loop_that_goes_on_after_errors_says_so() -> None:
    """One whose ``try`` is left by every handler does not."""
    names = {"clinic-asr", "pipeline-engine-streams-differ"}
    found = {e.scenario.name: diagnose(load_capture(e)).verdict.cause for e in RECORDED if e.scenario.name in names}
    said = {name: cause.explanation for name, cause in found.items() if cause is not None}
    assert "`try: .. except (IndexError, RuntimeError) as error:` in line 59" in said["clinic-asr"]
    assert "goes on" not in said["pipeline-engine-streams-differ"]
