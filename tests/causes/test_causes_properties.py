"""What holds for every capture: ranks have no names, and nothing that is missing makes the diagnosis fail."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.diagnosis.registry import RULES
from hangwatch.diagnosis.verdict import diagnose
from recorded import NAMES, is_healthy_and_stuck, load, renamed, restless, unclaimed, without

PARTS = ("rank", "stacks", "flight", "progress", "processes", "sources", "sites")
#: Their lines speak of the rank by number (``if rank == 0``), but no rule compares the number.
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(name=st.sampled_from(NAMES), data=st.data())
def test_renaming_ranks_renames_the_culprits(name: str, data: st.DataObject) -> None:
    """The verdict does not depend on which number a rank has or in which order ranks are listed."""
    capture = load(name)
    ranks = range(capture.job.world_size or 0)
    new = dict(zip(ranks, data.draw(st.permutations(ranks)), strict=True))
    before, after = diagnose(capture).verdict, diagnose(renamed(capture, new)).verdict
    assert set(after.culprit_ranks) == {new[r] for r in before.culprit_ranks}
    assert set(after.waiting_ranks) == {new[r] for r in before.waiting_ranks}
    assert after.kind == before.kind
    assert before.cause is not None
    assert after.cause is not None
    assert (after.cause.id, after.cause.confidence) == (before.cause.id, before.cause.confidence)


@SETTINGS
@given(name=st.sampled_from(NAMES), data=st.data())
def test_nothing_missing_makes_the_diagnosis_fail(name: str, data: st.DataObject) -> None:
    """With any part of any rank unseen there is a verdict, and it names ranks of the job only."""
    capture = load(name)
    world = set(range(capture.job.world_size or 0))
    parts = st.frozensets(st.sampled_from(PARTS), max_size=3)
    verdict = diagnose(without(capture, {r: data.draw(parts) for r in sorted(world)})).verdict
    assert set(verdict.culprit_ranks) <= world
    assert not set(verdict.culprit_ranks) & set(verdict.waiting_ranks)
    assert verdict.kind == "healthy" or verdict.cause is not None


@SETTINGS
@given(name=st.sampled_from(NAMES), missing=st.frozensets(st.sampled_from(("flight", "progress", "sites"))))
def test_no_rank_of_a_healthy_job_waits_beside_a_stuck_one(name: str, missing: frozenset[str]) -> None:
    """Whatever record and beat tell, and however often the one that waits wakes: its stack says that it waits."""
    capture = load(name)
    less = without(capture, dict.fromkeys(range(capture.job.world_size or 0), missing))
    waiting = {r for r, view in diagnose(less).case.views.items() if view.state == "waiting"}
    assert not is_healthy_and_stuck(diagnose(restless(less, waiting), min_wait_s=0.2))


@SETTINGS
@given(name=st.sampled_from(NAMES), data=st.data())
def test_what_is_not_read_does_not_turn_a_cause_into_a_sure_other_one(name: str, data: st.DataObject) -> None:
    """Without source text and call sites, the diagnosis may know less, but is not sure of something else."""
    capture = load(name)
    world = range(capture.job.world_size or 0)
    missing = frozenset(data.draw(st.sampled_from([("sources",), ("sites",), ("sources", "sites")])))
    full = diagnose(capture).verdict
    less = diagnose(without(capture, dict.fromkeys(world, missing))).verdict
    both = full.culprits_from == "cause" and less.culprits_from == "waits"  # of a tie no side is named any more
    assert less.culprit_ranks == (
        tuple(sorted((*full.culprit_ranks, *full.waiting_ranks))) if both else full.culprit_ranks
    )
    assert full.cause is not None
    assert less.cause is not None
    assert less.cause.id == full.cause.id or less.cause.confidence < 0.95


def test_rules_are_registered_once() -> None:
    """The list is explicit, and holds no rule twice."""
    assert len(set(RULES)) == len(RULES)


@SETTINGS
@given(name=st.sampled_from(NAMES), data=st.data())
def test_a_claim_taken_away_never_makes_a_proof(name: str, data: st.DataObject) -> None:
    """Of any group, any members may be nobody's: what was proven may be no more, and nothing else is proven instead."""
    capture = load(name)
    groups = {p.group for r in capture.ranks for p in r.progress or ()}
    taken = {
        g: data.draw(st.frozensets(st.sampled_from(g.ranks), max_size=len(g.ranks))) for g in sorted(groups) if g.ranks
    }
    before, after = diagnose(capture).verdict, diagnose(unclaimed(capture, taken)).verdict
    assert before.proven or not after.proven
    if after.kind == "deadlock":
        assert set(after.culprit_ranks) <= set(before.culprit_ranks)
