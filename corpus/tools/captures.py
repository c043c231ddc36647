"""hangwatch on captures: on all of them, and on what the flight recorders hold alone."""

from __future__ import annotations

from corpus.judging import Answer, answer_of
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture


def hangwatch(capture: Capture) -> Answer:
    """Return its verdict, as ``hangwatch diagnose`` gives it of an incident's folder."""
    return answer_of(diagnose(capture).verdict)


def recorder(capture: Capture) -> Answer:
    """Return its verdict where nothing but the recorders could be read: no stack, no process, no exception."""
    ranks = tuple(RankCapture(rank.identity, flight=rank.flight) for rank in capture.ranks)
    return hangwatch(Capture(capture.job, capture.at_ns, ranks))
