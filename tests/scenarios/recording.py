"""Captures of scenarios: how they are recorded, and what the present rules say of them."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from corpus.catalogue import captured, load_capture, zipped
from corpus.entries import Entry, Truth
from hangwatch.analysis.case import Case
from hangwatch.diagnosis.judged import judge
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident, Verdict
from hangwatch.outputs.bundle.bundle import read_bundle
from neutral import PACKAGES, neutral
from scenarios.judging import Judgement, judge_verdict
from scenarios.launching import python_of


def record(entry: Entry, incident: Incident, folder: Path, kept: Path) -> None:
    """Put what an incident of ``running.run_one(entry, folder)`` rests on into the folder ``kept``: ``NAME.json.gz``."""
    home = folder / entry.name
    _, capture = read_bundle(home / "state" / "incidents" / incident.id)
    content = neutral(msgspec.json.encode(capture).decode(), replacements(entry, home)).encode()
    kept.mkdir(exist_ok=True)
    (kept / f"{entry.name}.json.gz").write_bytes(zipped(content))


def replacements(entry: Entry, home: Path) -> dict[str, str]:
    """What stands in recordings in place of the paths of a run in the folder ``home``."""
    return {
        # Libraries first: they are in the run's folder, and its environment's path may begin with that of this one.
        str(home / "lib" / "site-packages"): PACKAGES,
        f"{python_of(entry).parents[1]}/": "/opt/venv/",
        str(home / "train"): "/srv/train",
        str(home): "/srv/run",
    }


def judge_again(entry: Entry) -> Judgement:
    """The row of a recorded hang by the present rules: what ``hangwatch diagnose`` says of its bundle today."""
    truth = entry.scenario.truth
    assert truth is not None
    return judge_verdict(entry, truth, verdict_of(entry))


def verdict_of(entry: Entry) -> Verdict:
    """What the present rules say of a recorded hang. Each is diagnosed once a process, whoever asks."""
    if entry.name not in _verdicts():
        _verdicts()[entry.name] = diagnose(load_capture(entry)).verdict
    return _verdicts()[entry.name]


@cache
def _verdicts() -> dict[str, Verdict]:
    return {}


def case_of(capture: Capture) -> Case | None:
    """The case that a verdict on a capture would rest on, None where nothing hangs. Without causes, unless they decide that."""
    if capture.engine is not None:
        found = diagnose(capture)
        return found.case if found.verdict.cause is not None else None
    judged = judge(capture)
    return judged.case if judged.kind != "healthy" else None


def kept_hangs(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Truth]]:
    """The hangs whose capture is kept, with what is true of them."""
    for entry in captured(entries):
        if entry.scenario.truth is not None:
            yield entry, entry.scenario.truth


def sample(entries: Iterable[Entry], one_in: int) -> frozenset[str]:
    """Return the names of one hang in so many, of every cause at least one: always the same while none is added."""
    by_cause: dict[str, list[str]] = defaultdict(list)
    for entry, truth in kept_hangs(entries):
        by_cause[truth.cause].append(entry.scenario.name)
    return frozenset(
        name
        for names in by_cause.values()
        for name in sorted(names, key=lambda name: zlib.crc32(name.encode()))[: math.ceil(len(names) / one_in)]
    )
