"""The row that comes first in a capture: what the confidence of an incident's cause is counted under."""

from __future__ import annotations

from hangwatch.causes.registry import explain
from hangwatch.causes.signature import Signature
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture


def first_row(capture: Capture) -> Signature:
    """The row of the first cause."""
    return explain(diagnose(capture).case)[0].signature
