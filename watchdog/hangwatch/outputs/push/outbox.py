"""What one receiver has not been told yet, and when to try again. Pure: the clock is the caller's."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.outputs.push.notices import Notice

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
#: Incidents kept for a receiver that does not answer; beyond it the oldest are given up.
_LIMIT = 100


@dataclass
class _Entry:
    notice: Notice
    told: Notice | None = None
    due_s: float = 0.0

    @property
    def untold(self) -> bool:
        return self.told is None or self.told.key != self.notice.key


@dataclass
class Outbox:
    """The latest notice of each incident for one receiver; only the latest is ever sent.

    A receiver that was away learns what holds now, and not what held meanwhile. While it does not answer, tries come
    1, 2, 4 .. 60 s apart, for all incidents together. ``repeat_s``: tell open incidents again that often.
    """

    repeat_s: float | None = None
    sent: int = 0
    failures: int = 0
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _retry_s: float = FIRST_RETRY_S
    _blocked_until_s: float = 0.0

    @property
    def pending(self) -> int:
        """How many incidents the receiver does not know in their present state."""
        return sum(entry.untold for entry in self._entries.values())

    def knows(self, notice: Notice) -> bool:
        """Whether a notice of this incident was taken in before, and its end not yet delivered."""
        return notice.incident.id in self._entries

    def put(self, notice: Notice, now_s: float, *, told: bool = False) -> bool:
        """Take in a notice. ``told``: this receiver knows it, from another agent. Returns whether there is anything to tell."""
        entry = self._entries.get(notice.incident.id)
        if entry is None:
            if told and notice.over:
                return False
            self._entries[notice.incident.id] = entry = _Entry(notice, notice if told else None, now_s)
            while len(self._entries) > _LIMIT:
                del self._entries[next(iter(self._entries))]
                self.failures += 1
        entry.notice = notice
        if entry.untold:
            entry.due_s = now_s
        return entry.untold or (told and self.repeat_s is not None)

    def next_due_s(self) -> float | None:
        """When to try next, None where there is nothing to tell."""
        soonest = min((e.due_s for e in self._entries.values() if e.untold or self.repeat_s is not None), default=None)
        return None if soonest is None else max(soonest, self._blocked_until_s)

    def take(self, now_s: float) -> tuple[Notice, Notice | None] | None:
        """The notice to tell now with the one told before, None where none is due."""
        if now_s < self._blocked_until_s:
            return None
        for entry in self._entries.values():
            if entry.due_s <= now_s and (entry.untold or self.repeat_s is not None):
                return entry.notice, entry.told
        return None

    def delivered(self, notice: Notice, now_s: float) -> None:
        """The receiver has taken it."""
        self.sent += 1
        self._retry_s, self._blocked_until_s = FIRST_RETRY_S, 0.0
        self._settle(notice, now_s)

    def refused(self, notice: Notice, now_s: float) -> None:
        """The receiver will never take it (a client error): it is not sent again."""
        self.failures += 1
        self._settle(notice, now_s)

    def failed(self, now_s: float, wait_s: float | None = None) -> None:
        """The receiver could not be reached, or asked for ``wait_s`` of patience."""
        self.failures += 1
        self._blocked_until_s = now_s + max(self._retry_s, min(wait_s or 0.0, 10 * LONGEST_RETRY_S))
        self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)

    def _settle(self, notice: Notice, now_s: float) -> None:
        entry = self._entries.get(notice.incident.id)
        if entry is None:
            return
        entry.told = notice
        if entry.untold:  # it has changed while it was on its way
            return
        if notice.over:
            del self._entries[notice.incident.id]
        elif self.repeat_s is not None:
            entry.due_s = now_s + self.repeat_s
