"""Records that lack a group in which their rank has done something, by its own beat. Pure.

Such a record was read at another time than the beat, or not in full. The first operation in flight on it may not be the
one that the rank is in, so the record does not count.
"""

from __future__ import annotations

from msgspec.structs import replace

from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord, OperationColumns


def without_torn_records(capture: Capture) -> Capture:
    """Return the capture without such records."""
    torn = {rank.rank for rank in capture.ranks if _is_torn(rank)}
    if not torn:
        return capture
    return replace(capture, ranks=tuple(replace(r, flight=None) if r.rank in torn else r for r in capture.ranks))


def _is_torn(rank: RankCapture) -> bool:
    if rank.flight is None:
        return False
    used = {p.group.key for p in rank.progress or () if p.enqueued > 0 and not p.mixed}
    listed = {p.group.key for p in rank.flight.progress}
    return not used <= listed and not used <= listed | _recorded(rank.flight)


def _recorded(flight: FlightRecord) -> set[str]:
    """Return the groups that a record has operations of."""
    operations = flight.operations.kinds if isinstance(flight.operations, OperationColumns) else flight.operations
    return {o.group.key for o in operations}
