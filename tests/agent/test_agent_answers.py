"""A verdict over several nodes that rests on ranks whose captures have not come."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.incidents.record import announce_to_nobody
from hangwatch.agent.job.other_nodes import NoOtherNodes
from hangwatch.agent.job.watch import UNANSWERED_CAPTURES, watch_job
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

GROUP = Group("0", (0, 1), "default_pg")
WORK = (Frame("read", "/srv/train/train.py", 30), Frame("<module>", "/srv/train/train.py", 90))


def _diagnosis(*, seen: bool) -> Diagnosis:
    """Rank 0 waits for rank 1, of which a capture has come or a digest alone."""
    waiting = rank(0, (operation(1, GROUP, 1, done=False),), collective_frames("all_reduce"))
    other = rank(1, (), WORK)
    if not seen:
        other = msgspec.structs.replace(other, processes=(), stacks=(), flight=None)
    return diagnose(world(waiting, other), patience=fixed_patience(1.0))


def test_nobody_is_blamed_before_its_node_has_had_time_to_answer(tmp_path: Path) -> None:
    """A few captures are waited for; a node that never answers is named in the end."""
    watch = watch_job(world().job, tmp_path, announce_to_nobody)
    watch.fleet = NoOtherNodes(answers_may_come=True)
    unseen = _diagnosis(seen=False)
    assert unseen.verdict.culprit_ranks == (1,)
    assert [watch.waits_for_answers(unseen) for _ in range(UNANSWERED_CAPTURES + 1)] == [True] * UNANSWERED_CAPTURES + [
        False
    ]


@pytest.mark.parametrize("fleet", [True, False])
def test_what_was_seen_is_reported_at_once(tmp_path: Path, fleet: bool) -> None:
    """With a capture of the culprit there is nothing to wait for, nor is there where no other node is asked."""
    watch = watch_job(world().job, tmp_path, announce_to_nobody)
    watch.fleet = NoOtherNodes(answers_may_come=fleet)
    assert not watch.waits_for_answers(_diagnosis(seen=True))
    assert fleet or not watch.waits_for_answers(_diagnosis(seen=False))
