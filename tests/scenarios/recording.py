"""Captures of the catalogue's hangs, kept so that every rule is held against all of them in seconds."""

from __future__ import annotations

import gc
import gzip
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from hangwatch.analysis.case import Case
from hangwatch.diagnosis.judged import judge
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident, Verdict
from hangwatch.outputs.bundle.bundle import read_bundle
from neutral import PACKAGES, neutral
from scenarios.catalogue import HERE, Entry, Truth
from scenarios.judging import Judgement, judge_verdict

CAPTURES = HERE / "captures"


def record(entry: Entry, incident: Incident, folder: Path, kept: Path) -> None:
    """Keep what an incident of ``running.run_one(entry, folder)`` rests on: ``NAME.json.gz`` in the folder ``kept``."""
    home = folder / entry.scenario.name
    _, capture = read_bundle(home / "state" / "incidents" / incident.id)
    text = msgspec.json.encode(capture).decode()
    environment = entry.python.parents[1]
    # Libraries first: they are in the run's folder, and its environment's path may begin with that of this one.
    replacements = {
        str(home / "lib" / "site-packages"): PACKAGES,
        f"{environment}/": "/opt/venv/",
        str(entry.program.parent): "/srv/train",
        str(home): "/srv/run",
    }
    kept.mkdir(exist_ok=True)
    # No time and no name in the header: the same capture gives the same file.
    path(entry, kept).write_bytes(gzip.compress(neutral(text, replacements).encode(), mtime=0))


def judge_again(entry: Entry, kept: Path = CAPTURES) -> Judgement:
    """The row of a recorded hang by the present rules: what ``hangwatch diagnose`` says of its bundle today."""
    truth = entry.scenario.truth
    assert truth is not None
    return judge_verdict(entry, truth, verdict_of(entry, kept))


def verdict_of(entry: Entry, kept: Path = CAPTURES) -> Verdict:
    """What the present rules say of a recorded hang. Each is diagnosed once a process, whoever asks."""
    return _verdict(path(entry, kept))


@cache
def _verdict(file: Path) -> Verdict:
    return diagnose(_load(file)).verdict


def case_of(capture: Capture) -> Case | None:
    """The case that a verdict on a capture would rest on, None where nothing hangs. Without causes, unless they decide that."""
    if capture.engine is not None:
        found = diagnose(capture)
        return found.case if found.verdict.cause is not None else None
    judged = judge(capture)
    return judged.case if judged.kind != "healthy" else None


def kept_hangs(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Truth]]:
    """The hangs whose capture is kept, with what is true of them."""
    for entry in entries:
        if entry.scenario.truth is not None and path(entry).exists():
            yield entry, entry.scenario.truth


def path(entry: Entry, kept: Path = CAPTURES) -> Path:
    """Where the capture of a scenario is kept: in the folder ``kept``."""
    return kept / f"{entry.scenario.name}.json.gz"


def load(entry: Entry, kept: Path = CAPTURES) -> Capture:
    """The capture of a scenario."""
    return _load(path(entry, kept))


@lru_cache(maxsize=2)  # decoded they take 2 MB each, and there are hundreds
def _load(file: Path) -> Capture:
    content = gzip.decompress(file.read_bytes())
    gc.disable()  # it takes half the time of a decode, and a capture has no cycles
    try:
        return msgspec.json.decode(content, type=Capture)
    finally:
        gc.enable()
