"""What a hang is called after so long, by what its culprit has done meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Frame
from worlds import NOW_NS, SECOND_NS, collective_frames, operation, rank, world

PACKING = (Frame("push", "/srv/train/push.py", 40, "time.sleep(4)"), Frame("<module>", "/srv/train/push.py", 90))


@pytest.mark.parametrize(("called_s", "kind"), [(3, "straggler"), (9, "stall")])
def test_who_has_called_a_collective_lately_is_late_and_not_stuck(called_s: int, kind: str) -> None:
    """Its peer awaits its next step, while it hands something on to others in a group of theirs, with pauses."""
    ours, theirs = Group("0", (0, 1), "default_pg"), Group("1", (0, 2), "push")
    handed = msgspec.structs.replace(operation(2, theirs, 1), created_ns=NOW_NS - called_s * SECOND_NS)
    ranks = (
        rank(0, (operation(1, ours, 1), handed), PACKING, channel="hrtimer_nanosleep"),
        rank(1, (operation(1, ours, 1), operation(2, ours, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0))
    assert found.verdict.culprit_ranks == (0,)
    assert found.verdict.kind == kind
