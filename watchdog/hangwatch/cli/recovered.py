"""What a hang cost a restarted job: from the incident, and from the steps that the job recorded.

Pure except ``read_steps``. Used by ``hangwatch demo recover`` and by ``benchmarks/recovery.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from hangwatch.model.incident import Incident


class Step(msgspec.Struct, frozen=True):
    """A line of ``steps.jsonl`` of the demo ``recover``: process ``pid`` finished a step at ``at_s`` (since the epoch)."""

    step: int
    at_s: float
    pid: int


class Recovery(msgspec.Struct, frozen=True):
    """A hang and what came after it, in seconds since its onset.

    ``hung_after``: the last step before it. ``resumed_step``: the first step after the restart, which repeats what
    came after the checkpoint. ``new_step_s``: when the step after ``hung_after`` was done.
    """

    hung_after: int
    resumed_step: int
    confirmed_s: float
    resumed_s: float
    new_step_s: float


def read_steps(file: Path) -> list[Step]:
    """Return the steps that were recorded, in their order; none without a file. A last line that is cut off is left out."""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except OSError:
        return []
    return [msgspec.json.decode(line, type=Step) for line in lines if line.endswith(b"\n")]


def find_recovery(incident: Incident, steps: Sequence[Step]) -> Recovery | None:
    """Return what the hang cost; None if the job never got beyond the step it hung after."""
    if incident.confirmed_at is None:
        return None
    onset_s, confirmed_s = _seconds(incident.onset_at), _seconds(incident.confirmed_at)
    before = [step for step in steps if step.at_s <= confirmed_s]
    if not before:
        return None
    hung_after = before[-1].step
    after = [step for step in steps if step.at_s > confirmed_s and step.pid != before[-1].pid]
    new = next((step for step in after if step.step > hung_after), None)
    if new is None:
        return None
    return Recovery(
        hung_after=hung_after,
        resumed_step=after[0].step,
        confirmed_s=confirmed_s - onset_s,
        resumed_s=after[0].at_s - onset_s,
        new_step_s=new.at_s - onset_s,
    )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
