"""Controls over time: recorded from start to end, and counted by what replays of them say."""

from __future__ import annotations

import os
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corpus.controls import Recording, Tick, keep_recording, kept_controls, load_recording
from corpus.entries import Entry
from hangwatch.model.incident import Verdict
from neutral import neutral
from scenarios.recording import replacements
from scenarios.replaying import PATIENCES, replay
from scenarios.running import run_one
from scenarios.tables import Replayed


@dataclass(frozen=True)
class Replay:
    """A control that was replayed: the ``load`` when it was recorded, and the hang that was reported, by the patience."""

    entry: Entry
    load: float
    hangs: dict[str, Verdict | None]


def controls_of(entries: Sequence[Entry]) -> list[Entry]:
    """Return the controls among them: of each family the smallest first, so that any part of the list has all sorts."""
    by_family: dict[str, list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: (entry.scenario.ranks, entry.scenario.limit_s)):
        if entry.scenario.control is not None:
            by_family[entry.family].append(entry)
    turns = sorted((turn, family) for family, of in by_family.items() for turn in range(len(of)))
    return [by_family[family][turn] for turn, family in turns]


def record_controls(entries: Sequence[Entry], folder: Path, at_once: int) -> Iterator[str]:
    """Record those controls that are not recorded, as the machine's least important work, and say of each how it went.

    When it is interrupted, those that run are still recorded.
    """
    os.nice(19)
    missing = [entry for entry in entries if entry.name not in kept_controls()]
    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(_record, entry, folder) for entry in missing]
        try:
            for number, done in enumerate(as_completed(running), 1):
                yield f"[{number}/{len(missing)}] {done.result()}"
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)


def _record(entry: Entry, folder: Path) -> str:
    control, home = entry.scenario.control, folder / entry.name
    assert control is not None
    ticks = folder / f"{entry.name}.jsonl"
    run = run_one(entry, folder, ticks)
    load = round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)
    try:
        if run.status not in control.status:
            return f"{entry.name}: not kept, exit status {run.status} and not {control.status}\n{run.output[-2000:]}"
        lines = neutral(ticks.read_text(), replacements(entry, home)).splitlines()
        seen = tuple(msgspec.json.decode(line, type=Tick) for line in lines)
        size = keep_recording(entry.family, entry.name, Recording(load, seen)) >> 10
        return f"{entry.name}: {run.took_s:.0f} s, {len(seen)} ticks, {size} KiB, load {load:.1f} a core"
    finally:
        ticks.unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)


def replay_all(entries: Sequence[Entry]) -> Iterator[Replay]:
    """Replay each of these controls that is recorded, with each patience."""
    kept = frozenset(kept_controls())
    for entry in controls_of(entries):
        if entry.name in kept:
            recording = load_recording(entry.family, entry.name)
            yield Replay(entry, recording.load, {shown: replay(recording, of_s) for shown, of_s in PATIENCES.items()})


def count_hangs(replays: Sequence[Replay]) -> Replayed:
    """Put what replays say together."""
    called = {shown: sum(one.hangs[shown] is not None for one in replays) for shown in PATIENCES}
    load = statistics.median(one.load for one in replays) if replays else 0.0
    return Replayed(len(replays), load, called)
