"""Corrects what Gloo reports as completed. Standard library only.

ProcessGroupGloo (torch 2.13) notes ``last_completed_collective`` from several threads, each after its operation has
been handed back. A late one overwrites a newer number, and until the next operation the group looks as if an
operation were in flight. This was measured in one of five pauses of a job. The entries' ``retired`` is right, so a
number that says "in flight" and does not move is checked against them.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from .recorder import Progress

_FIRST_CHECK_S = 0.9
_LONGEST_PAUSE_S = 30.0


class _Doubt(NamedTuple):
    """One status that says "in flight". ``completed``: the number by the entries; None before they were read."""

    status: Progress
    check_at: float
    pause_s: float
    completed: int | None


class Completion:
    """Keeps, by ``pg_id``, the statuses that say "in flight", and what the entries say of them."""

    def __init__(self) -> None:
        self._doubts: dict[int, _Doubt] = {}

    def wants_entries(self, statuses: dict[int, Progress], now: float) -> bool:
        """True if a status has said "in flight" without moving for long enough to be checked.

        ``now``: monotonic.
        """
        before, self._doubts = self._doubts, {}
        for pg_id, status in statuses.items():
            if status.completed < status.enqueued:
                doubt = before.get(pg_id)
                if doubt is None or doubt.status != status:
                    doubt = _Doubt(status, now + _FIRST_CHECK_S, _FIRST_CHECK_S, None)
                self._doubts[pg_id] = doubt
        return self.is_due(now)

    def is_due(self, now: float) -> bool:
        """True if a doubtful status is to be checked now."""
        return any(doubt.check_at <= now for doubt in self._doubts.values())

    def settle(self, dump: bytes, now: float) -> None:
        """Read from a JSON dump which doubtful operations are unfinished; ask again later, and ever more rarely."""
        unfinished = parse_unfinished(dump)
        for pg_id, doubt in self._doubts.items():
            enqueued = doubt.status.enqueued  # the entries may be newer than the status
            completed = min(unfinished[pg_id] - 1, enqueued) if pg_id in unfinished else enqueued
            pause_s = min(2 * doubt.pause_s, _LONGEST_PAUSE_S)
            self._doubts[pg_id] = _Doubt(doubt.status, now + pause_s, pause_s, completed)

    def correct(self, pg_id: int, status: Progress) -> Progress:
        """Return the status with the number of completed operations that the entries prove."""
        doubt = self._doubts.get(pg_id)
        if doubt is None or doubt.completed is None or doubt.status != status:
            return status
        return status._replace(completed=max(status.completed, doubt.completed))


def parse_unfinished(dump: bytes) -> dict[int, int]:
    """Return the lowest collective sequence number that is not retired, by ``pg_id``, without point-to-point.

    Only entries that are not retired are read: torch sorts an entry's keys, and all that is needed comes before
    ``retired``. A dump in any other form is decoded as a whole. Raises ValueError if it is no JSON dump.
    """
    found: dict[int, int] = {}
    end = dump.find(b'"retired":false')
    while end >= 0:
        entry = dump[dump.rfind(b"{", 0, end) : end]
        if not all(key in entry for key in (b'"collective_seq_id":', b'"is_p2p":', b'"pg_id":')):
            return _decode_unfinished(dump)
        try:
            _keep_lowest(found, json.loads(entry.rstrip(b", ") + b"}"))
        except ValueError:  # the brace was part of a group's name
            return _decode_unfinished(dump)
        end = dump.find(b'"retired":false', end + 1)
    return found


def _decode_unfinished(dump: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in json.loads(dump).get("entries", ()):
        if not entry.get("retired"):
            _keep_lowest(found, entry)
    return found


def _keep_lowest(found: dict[int, int], entry: dict[str, object]) -> None:
    pg_id, sequence = entry["pg_id"], entry["collective_seq_id"]
    if not entry.get("is_p2p") and isinstance(pg_id, int) and isinstance(sequence, int):
        found[pg_id] = min(sequence, found.get(pg_id, sequence))
