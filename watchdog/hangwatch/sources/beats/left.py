"""What ranks leave when their programs end: files ``RUN_DIR/ranks/PID.left``.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from hangwatch.model.beats import BeatGroup
from hangwatch.model.capture import RankIdentity
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.left import LEFT_VERSION, Left
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.flight.pickles import FlightFormatError, load_pickle
from hangwatch.sources.flight.recorder import merge_flights, parse_flight
from hangwatch.sources.proc.files import inner_pid, is_start, read_small
from hangwatch.sources.redaction import redact_text

_LIMIT_BYTES = 16 << 20
#: How many operations are kept. Ranks differ in the last few, but a wrong pair may have matched some steps earlier.
ENTRIES_KEPT = 300
_FRAMES_LIMIT = 100


class _Left(msgspec.Struct):
    """The content of the pickle."""

    version: int
    pid: int
    start_ticks: int
    at_ns: int
    how: Literal["exit", "terminate", "asked"]
    reported: bool
    groups: str
    error: list[str]
    stack: list[tuple[str, str, int]]
    dumps: dict[str, bytes]
    rank: int | None = None
    world_size: int | None = None


def parse_left(data: bytes) -> Left:
    """Decode one ``.left`` file. Raises ``ValueError`` for any other content, or a newer version."""
    try:
        found = msgspec.convert(load_pickle(data), _Left)
        groups = msgspec.json.decode(found.groups, type=list[BeatGroup])
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no last word of a rank: {error}") from None
    if found.version > LEFT_VERSION:
        raise ValueError(f"it is in format {found.version}, and this version of hangwatch reads up to {LEFT_VERSION}")
    frames = tuple(Frame(*call) for call in found.stack[:_FRAMES_LIMIT])
    main = ThreadStack(found.pid, "MainThread", is_main=True, active=False, owns_gil=False, frames=frames)
    return Left(
        pid=found.pid,
        start_ticks=found.start_ticks,
        at_ns=found.at_ns,
        how=found.how,
        rank=found.rank,
        reported=found.reported,
        error=tuple(map(redact_text, found.error)),
        stack=StackSample(found.at_ns, (main,)) if frames else None,
        flight=_read_flight(found, groups),
    )


def _read_flight(found: _Left, groups: Sequence[BeatGroup]) -> FlightRecord | None:
    records = []
    for backend, dump in found.dumps.items():
        own = [one for one in groups if one.pg_id is None or one.backend == backend]
        with contextlib.suppress(FlightFormatError):
            loaded = load_pickle(dump)
            if not isinstance(loaded, dict) or not isinstance(loaded.get("entries", []), list):
                continue
            records.append(
                parse_flight(
                    {**loaded, "entries": loaded.get("entries", [])[-ENTRIES_KEPT:]},
                    at_ns=found.at_ns,
                    source="pickle",
                    beat_groups=own,
                    world_size=found.world_size,
                )
            )
    records = [one for one in records if len(one.operations)]
    return merge_flights(records) if records else None


def read_left(run_dir: Path, ranks: Iterable[RankIdentity]) -> dict[int, Left]:
    """Return what exactly these processes left in our run directory, by pid, without what is unreadable."""
    found: dict[int, Left] = {}
    for identity in ranks:
        path = run_dir / "ranks" / f"{inner_pid(identity.pid)}.left"
        data = read_small(str(path), _LIMIT_BYTES, os.O_NOFOLLOW | os.O_NONBLOCK)
        if data:
            with contextlib.suppress(ValueError):
                left = parse_left(data)
                if is_start(left.start_ticks, identity.start_time):
                    found[identity.pid] = left
    return found
