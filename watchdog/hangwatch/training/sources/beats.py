"""Training telemetry from the ranks' beats. Pure; may import hangwatch.model and msgspec.

It is written by ``hangwatch/probe/training.py``.
"""

from __future__ import annotations

import msgspec

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import LoggedStep, TrainingSetup


class _Counted(msgspec.Struct):
    count: int


def parse_steps(beat: Beat, after: int, rank: int) -> tuple[int, tuple[LoggedStep, ...]] | Gap:
    """Return the highest count of a beat's steps and the new steps, oldest first; a gap if they are unreadable.

    New are those with a count above ``after``.
    """
    if beat.telemetry is None:
        return after, ()
    try:
        raw = msgspec.json.decode(beat.telemetry.steps, type=list[msgspec.Raw])
        counted = sorted((msgspec.json.decode(one, type=_Counted).count, one) for one in raw)
        new = [(count, one) for count, one in counted if count > after]
        steps = tuple(msgspec.json.decode(one, type=LoggedStep, strict=False) for _, one in new)
    except (msgspec.MsgspecError, ValueError) as error:
        return Gap("telemetry", f"the training part of the heartbeat cannot be read: {error}", rank=rank)
    return new[-1][0] if new else after, tuple(msgspec.structs.replace(step, rank=rank) for step in steps)


def parse_setup(beat: Beat, rank: int) -> TrainingSetup | None:
    """Return what the rank trains with; None if its beat does not tell, or is unreadable."""
    if beat.telemetry is None:
        return None
    try:
        setup = msgspec.json.decode(beat.telemetry.setup, type=TrainingSetup, strict=False)
    except (msgspec.MsgspecError, ValueError):
        return None
    return msgspec.structs.replace(setup, rank=rank)
