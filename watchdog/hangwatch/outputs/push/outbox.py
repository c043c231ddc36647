"""Undelivered notifications of one receiver, and when to retry. Pure: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.outputs.push.notifications import Notification

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
#: Incidents kept for a receiver that does not answer; beyond this the oldest are dropped.
_LIMIT = 100


@dataclass
class _Entry:
    notification: Notification
    sent: Notification | None = None
    due_s: float = 0.0

    @property
    def undelivered(self) -> bool:
        return self.sent is None or self.sent.key != self.notification.key


@dataclass
class Outbox:
    """The latest notification of each incident for one receiver; only the latest is ever sent.

    A receiver that was unreachable gets the current state, not the states in between. While it does not answer, retries are
    1, 2, 4 .. 60 s apart, for all incidents together. ``repeat_s``: interval at which open incidents are sent again.
    """

    repeat_s: float | None = None
    sent: int = 0
    failures: int = 0
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _retry_s: float = FIRST_RETRY_S
    _blocked_until_s: float = 0.0

    @property
    def pending(self) -> int:
        """How many incidents have a state that was not delivered yet."""
        return sum(entry.undelivered for entry in self._entries.values())

    def knows(self, notification: Notification) -> bool:
        """True if the outbox has a notification of this incident, and its end is not yet delivered."""
        return notification.incident.id in self._entries

    def put(self, notification: Notification, now_s: float, *, delivered: bool = False) -> bool:
        """Add a notification; True if there is anything to send.

        ``delivered``: an earlier agent has delivered it.
        """
        entry = self._entries.get(notification.incident.id)
        if entry is None:
            if delivered and notification.over:
                return False
            self._entries[notification.incident.id] = entry = _Entry(
                notification, notification if delivered else None, now_s
            )
            while len(self._entries) > _LIMIT:
                del self._entries[next(iter(self._entries))]
                self.failures += 1
        entry.notification = notification
        if entry.undelivered:
            entry.due_s = now_s
        return entry.undelivered or (delivered and self.repeat_s is not None)

    def next_due_s(self) -> float | None:
        """Return when to try next; None if there is nothing to send."""
        soonest = min(
            (e.due_s for e in self._entries.values() if e.undelivered or self.repeat_s is not None), default=None
        )
        return None if soonest is None else max(soonest, self._blocked_until_s)

    def take(self, now_s: float) -> tuple[Notification, Notification | None] | None:
        """Return the notification to send now and the one sent before; None if none is due."""
        if now_s < self._blocked_until_s:
            return None
        for entry in self._entries.values():
            if entry.due_s <= now_s and (entry.undelivered or self.repeat_s is not None):
                return entry.notification, entry.sent
        return None

    def delivered(self, notification: Notification, now_s: float) -> None:
        """Note that the receiver has accepted the notification."""
        self.sent += 1
        self._retry_s, self._blocked_until_s = FIRST_RETRY_S, 0.0
        self._settle(notification, now_s)

    def refused(self, notification: Notification, now_s: float) -> None:
        """Note that the receiver has rejected the notification (a client error): it is not sent again."""
        self.failures += 1
        self._settle(notification, now_s)

    def failed(self, now_s: float, wait_s: float | None = None) -> None:
        """Note that the receiver was unreachable, or asked to wait ``wait_s`` seconds (Retry-After)."""
        self.failures += 1
        self._blocked_until_s = now_s + max(self._retry_s, min(wait_s or 0.0, 10 * LONGEST_RETRY_S))
        self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)

    def _settle(self, notification: Notification, now_s: float) -> None:
        entry = self._entries.get(notification.incident.id)
        if entry is None:
            return
        entry.sent = notification
        if entry.undelivered:  # it has changed while it was being sent
            return
        if notification.over:
            del self._entries[notification.incident.id]
        elif self.repeat_s is not None:
            entry.due_s = now_s + self.repeat_s
