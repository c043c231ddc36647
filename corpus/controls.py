"""What the agent saw of healthy jobs from start to end: replayed, it tells whether one would be called a hang."""

from __future__ import annotations

import lzma
import threading
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import Operation, Operations
from hangwatch.model.serving import EngineState

#: ``FAMILY.zip``, of ``SCENARIO.json.xz``: one can be added at a time, and recording all takes many hours.
CONTROLS = Path(__file__).resolve().parent / "controls"
_ENDING = ".json.xz"
#: Several are recorded at a time.
_LOCK = threading.Lock()
_replace = msgspec.structs.replace


class Tick(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tick of an agent: at ``at_ns`` (wall clock), ``at_s`` of its monotonic clock.

    ``ranks`` have been seen by then; ``lost``: since when (monotonic) those are gone that are, by rank; ``anew``: the job was
    started anew. ``beats``: the last of each living rank, by pid. ``capture``: begun at this tick, with the samples of this
    capture alone; None where nothing could be suspected. ``engine``: the serving engine that could be suspected, by a patience
    of ``engine_patience_s`` as it was learnt.
    """

    at_ns: int
    at_s: float
    job: Job
    ranks: tuple[RankIdentity, ...]
    beats: dict[int, Beat]
    lost: dict[int, float] = {}
    anew: bool = False
    capture: Capture | None = None
    engine: EngineState | None = None
    engine_patience_s: float = 0.0


class Recording(msgspec.Struct, frozen=True):
    """All ticks of a control, of each of its jobs in order.

    ``load``: processes that were ready to run, for each core, in the last minute: on a machine with much to do, jobs stall.
    """

    load: float
    ticks: tuple[Tick, ...]


#: From one place of a table up to another.
_Run = tuple[int, int]


class _Packed(msgspec.Struct, frozen=True):
    """A recording as it is kept: its flight records are without operations, each of which is in a hundred of them.

    ``operations``: all of a process, by pid. ``runs``: which of them a record has, for each record in order.
    """

    recording: Recording
    operations: dict[int, tuple[Operation, ...]]
    runs: tuple[tuple[_Run, ...], ...]


def kept_controls() -> list[str]:
    """Return the names of the controls that are recorded."""
    names: list[str] = []
    for path in CONTROLS.glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            names += archive.namelist()
    return sorted(name.removesuffix(_ENDING) for name in names)


def load_recording(family: str, name: str) -> Recording:
    """Return the recording of a control. Raises OSError or KeyError where there is none."""
    with zipfile.ZipFile(_archive(family)) as archive:
        kept = archive.read(name + _ENDING)
    packed = msgspec.json.decode(lzma.decompress(kept), type=_Packed)
    runs = iter(packed.runs)

    def unpack(pid: int, _: Operations) -> Operations:
        return tuple(o for first, stop in next(runs) for o in packed.operations[pid][first:stop])

    return _with_operations(packed.recording, unpack)


def keep_recording(family: str, name: str, recording: Recording) -> int:
    """Put a recording where that of the control belongs, and return its size in bytes."""
    tables: dict[int, dict[Operation, int]] = defaultdict(dict)
    runs = []

    def pack(pid: int, operations: Operations) -> Operations:
        table = tables[pid]
        runs.append(_find_runs(table.setdefault(one, len(table)) for one in operations))
        return ()

    shared = _with_operations(recording, pack)
    packed = _Packed(shared, {pid: tuple(table) for pid, table in tables.items()}, tuple(runs))
    kept = lzma.compress(msgspec.json.encode(packed))
    with _LOCK, zipfile.ZipFile(_archive(family), "a") as archive:
        archive.writestr(zipfile.ZipInfo(name + _ENDING), kept)
    return len(kept)


def _find_runs(places: Iterable[int]) -> tuple[_Run, ...]:
    runs: list[_Run] = []
    for place in places:
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return tuple(runs)


def _with_operations(recording: Recording, change: Callable[[int, Operations], Operations]) -> Recording:
    """The recording with other operations in each flight record; ``change`` is called for one after the other."""

    def of_rank(rank: RankCapture) -> RankCapture:
        if rank.flight is None:
            return rank
        operations = change(rank.identity.pid, rank.flight.operations)
        return _replace(rank, flight=_replace(rank.flight, operations=operations))

    def of_tick(tick: Tick) -> Tick:
        if tick.capture is None:
            return tick
        return _replace(tick, capture=_replace(tick.capture, ranks=tuple(map(of_rank, tick.capture.ranks))))

    return _replace(recording, ticks=tuple(map(of_tick, recording.ticks)))


def _archive(family: str) -> Path:
    return CONTROLS / f"{family}.zip"
