"""Holds what a tool says against the truth of a scenario."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Literal

import msgspec

from comparing.reading import Reading
from scenarios.catalogue import Entry
from scenarios.dumping import PREFIX

Named = Literal["exact", "among", "wrong", "nobody", "failed"]


class Judged(msgspec.Struct, frozen=True):
    """One tool on one hang.

    ``named``: the ranks it names are the culprits of the truth (``exact``), at least one of them is (``among``), none of
    them is (``wrong``), it names ``nobody``, or it ``failed`` and names nobody. ``lines``: whether it shows the line of both
    sides, None where the dumps do not hold both.
    """

    tool: str
    named: Named
    culprits: tuple[int, ...]
    cause: bool
    said: str | None
    lines: bool | None
    status: int | None
    seconds: float
    error: str | None = None


def judge(entry: Entry, tool: str, reading: Reading, folder: Path, status: int | None, seconds: float) -> Judged:
    """The row of one tool on the dumps in a folder."""
    truth = entry.scenario.truth
    assert truth is not None
    sides = call_sites(entry, folder)
    shown = {(file.rpartition("/")[2], line) for file, line in reading.lines}
    return Judged(
        tool=tool,
        named=_named(set(reading.culprits), {int(rank) for rank in truth.culprits}, reading.error),
        culprits=reading.culprits,
        cause=reading.cause == truth.cause,
        said=reading.cause,
        lines=None if sides is None else all(side & shown for side in sides),
        status=status,
        seconds=round(seconds, 2),
        error=reading.error,
    )


def _named(said: set[int], true: set[int], error: str | None) -> Named:
    if said:
        return "exact" if said == true else "among" if said & true else "wrong"
    return "nobody" if error is None else "failed"


def call_sites(entry: Entry, folder: Path) -> tuple[set[tuple[str, int]], ...] | None:
    """The lines of both sides by the dumps: where each called its oldest operation that has not completed.

    What was launched as one (batched sends) is never recorded as completed, so only what comes after the last operation
    of its group that is counts. The first side is that of the culprits, the second that of the others; where all ranks are
    culprits, each is a side. None where a side has no line: it is in no operation, or called it from a thread without
    Python frames. A line is (file name, number).
    """
    truth = entry.scenario.truth
    assert truth is not None
    ranks = range(entry.scenario.ranks)
    culprits = {rank for rank in ranks if rank in truth.culprits}
    sides = [culprits, set(ranks) - culprits] if len(culprits) < len(ranks) else [{rank} for rank in ranks]
    lines = tuple({line for rank in side if (line := _pending(entry, folder, rank)) is not None} for side in sides)
    return lines if all(lines) else None


def _pending(entry: Entry, folder: Path, rank: int) -> tuple[str, int] | None:
    file = folder / f"{PREFIX}{rank}"
    if not file.exists():
        return None
    dump: dict[str, Any] = pickle.loads(file.read_bytes())  # noqa: S301  # one of ours
    pending: dict[str, dict[str, Any]] = {}
    for operation in dump["entries"]:
        name = operation["process_group"][0]
        if operation["state"] == "completed":
            pending.pop(name, None)
        else:
            pending.setdefault(name, operation)
    oldest = min(pending.values(), key=lambda one: one["record_id"], default={"frames": ()})
    lines = [frame["line"] for frame in oldest["frames"] if frame["filename"].endswith(f"/{entry.program.name}")]
    return (entry.program.name, lines[0]) if lines else None
