"""When a receiver is notified, with a clock of the test."""

from __future__ import annotations

import msgspec
from examples import hang_incident

from hangwatch.outputs.push.notifications import Notification
from hangwatch.outputs.push.outbox import LONGEST_RETRY_S, Outbox


def notification(id: str = "one", ended_at: str | None = None) -> Notification:
    """The notification of an incident."""
    return Notification(msgspec.structs.replace(hang_incident(ended_at), id=id), None, "gpu-17")


OVER = "2026-05-28T21:00:00.000Z"


def test_the_same_state_is_sent_once() -> None:
    """However often the agent reports it, an incident is sent once, its end once, and then it is dropped."""
    box = Outbox()
    assert box.put(notification(), 0.0)
    assert box.take(0.0) == (notification(), None)
    box.delivered(notification(), 0.0)
    assert not box.put(notification(), 1.0)
    assert box.take(1.0) is None
    assert box.put(notification(ended_at=OVER), 2.0)
    assert box.take(2.0) == (notification(ended_at=OVER), notification())
    box.delivered(notification(ended_at=OVER), 2.0)
    assert (box.pending, box.next_due_s(), box.sent) == (0, None, 2)


def test_an_open_incident_is_repeated_where_silence_means_its_end() -> None:
    """Alertmanager resolves alerts that are not repeated, so an open incident is sent again until its end."""
    box = Outbox(repeat_s=60.0)
    box.put(notification(), 0.0)
    box.delivered(notification(), 0.0)
    assert (box.next_due_s(), box.pending) == (60.0, 0)
    assert box.take(59.0) is None
    assert box.take(60.0) == (notification(), notification())
    box.put(notification(ended_at=OVER), 61.0)
    box.delivered(notification(ended_at=OVER), 61.0)
    assert box.next_due_s() is None


def test_tries_come_further_and_further_apart() -> None:
    """A receiver that is away is asked after 1, 2, 4 .. 60 s, and at once again after it has answered."""
    box = Outbox()
    box.put(notification(), 0.0)
    now_s, pauses = 0.0, []
    for _ in range(9):
        assert box.take(now_s) is not None
        box.failed(now_s)
        assert box.take(now_s) is None
        pauses.append((box.next_due_s() or 0.0) - now_s)
        now_s += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_RETRY_S, LONGEST_RETRY_S, LONGEST_RETRY_S]
    box.delivered(notification(), now_s)
    box.put(notification("two"), now_s)
    assert box.take(now_s) == (notification("two"), None)
    assert box.failures == 9


def test_a_receiver_may_ask_for_patience() -> None:
    """``Retry-After`` is heeded, within reason."""
    box = Outbox()
    box.put(notification(), 0.0)
    box.failed(0.0, wait_s=30.0)
    assert box.next_due_s() == 30.0
    box.failed(30.0, wait_s=1e9)
    assert (box.next_due_s() or 0.0) <= 30.0 + 600.0


def test_who_was_away_learns_what_holds_now() -> None:
    """What changed while a message was on its way is sent after it; what came and went meanwhile is one message."""
    box = Outbox()
    box.put(notification(), 0.0)
    box.put(notification(ended_at=OVER), 1.0)
    assert box.take(1.0) == (notification(ended_at=OVER), None)
    box.put(notification("two"), 1.0)
    box.put(notification("two", ended_at=OVER), 1.5)
    box.delivered(notification("two"), 2.0)
    assert box.pending == 2


def test_what_is_refused_is_not_sent_again() -> None:
    """A receiver that calls a message wrong gets no second copy of it, but the next news."""
    box = Outbox()
    box.put(notification(), 0.0)
    box.refused(notification(), 0.0)
    assert (box.take(1.0), box.pending, box.failures) == (None, 0, 1)
    assert box.put(notification(ended_at=OVER), 2.0)


def test_a_receiver_that_never_answers_costs_bounded_memory() -> None:
    """Of very many incidents the oldest are given up, and that is counted."""
    box = Outbox()
    for number in range(1000):
        box.put(notification(str(number)), 0.0)
    assert box.pending == 100
    assert box.failures == 900
    assert (box.take(0.0) or (notification(), None))[0].incident.id == "900"
