"""A verdict over several nodes that rests on ranks whose captures have not come."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from hangwatch.agent.job.watch import UNANSWERED_LOOKS, JobWatch
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Incident
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

GROUP = Group("0", (0, 1), "default_pg")
WORK = (Frame("read", "/srv/train/train.py", 30), Frame("<module>", "/srv/train/train.py", 90))


async def _ignore(incident: Incident, path: Path | None) -> None:
    """Nobody is told."""


def _diagnosis(*, heard: bool) -> Diagnosis:
    """Rank 0 waits for rank 1, of which a capture has come or a digest alone."""
    waiting = rank(0, (operation(1, GROUP, 1, done=False),), collective_frames("all_reduce"))
    other = rank(1, (), WORK)
    if not heard:
        other = msgspec.structs.replace(other, processes=(), stacks=(), flight=None)
    return diagnose(world(waiting, other), patience=fixed_patience(1.0))


def test_nobody_is_blamed_before_its_node_has_had_time_to_answer(tmp_path: Path) -> None:
    """A few looks are waited for; a node that never answers is named in the end."""
    watch = JobWatch(world().job, tmp_path, _ignore)
    watch.fleet = cast("Any", object())
    unheard = _diagnosis(heard=False)
    assert unheard.verdict.culprit_ranks == (1,)
    assert [watch.waits_for_answers(unheard) for _ in range(UNANSWERED_LOOKS + 1)] == [True] * UNANSWERED_LOOKS + [
        False
    ]


@pytest.mark.parametrize("fleet", [True, False])
def test_what_was_seen_is_told_at_once(tmp_path: Path, fleet: bool) -> None:
    """With a capture of the culprit there is nothing to wait for, nor is there where no other node is asked."""
    watch = JobWatch(world().job, tmp_path, _ignore)
    watch.fleet = cast("Any", object()) if fleet else None
    assert not watch.waits_for_answers(_diagnosis(heard=True))
    assert fleet or not watch.waits_for_answers(_diagnosis(heard=False))
