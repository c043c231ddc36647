"""``stacks.speedscope.json``: the stacks for speedscope's flame graphs. Pure; may import the model.

Format: speedscope's file format, https://www.speedscope.app/file-format-schema.json (``src/lib/file-format-spec.ts``,
speedscope 1.25.0), whose stacks are outermost frame first. The first profile has every rank's main thread once, with
weight 1; the others are single threads over the time they were sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from hangwatch import __version__
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.incident import Incident
from hangwatch.model.numbers import name_guests
from hangwatch.model.stacks import Frame
from hangwatch.model.transforms.names import names_of
from hangwatch.outputs.sanitize import excerpt

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
#: Maximum number of ranks with profiles of their own; culprits first.
_MAX_RANKS = 64


class _Frames:
    """The table of frames that all profiles share."""

    def __init__(self) -> None:
        self.table: list[dict[str, str | int]] = []
        self._numbers: dict[tuple[str, str, int], int] = {}

    def stack(self, frames: Sequence[Frame]) -> list[int]:
        """Return the numbers of the frames, outermost first."""
        return [self._number(frame) for frame in reversed(frames)]

    def _number(self, frame: Frame) -> int:
        key = (frame.function, frame.file, frame.line)
        if key not in self._numbers:
            self._numbers[key] = len(self.table)
            self.table.append(
                {"name": excerpt(frame.function), "file": excerpt(frame.file), "line": max(frame.line, 0)}
            )
        return self._numbers[key]


def encode_speedscope(incident: Incident, capture: Capture) -> bytes:
    """Return the file for one capture."""
    frames = _Frames()
    profiles = [_all_ranks(capture, frames)]
    culprits, names = set(incident.verdict.culprit_ranks), names_of(capture)
    for rank in sorted(capture.ranks, key=lambda one: (one.rank not in culprits, one.rank))[:_MAX_RANKS]:
        profiles += _threads(rank, frames, names)
    return msgspec.json.encode(
        {
            "$schema": _SCHEMA,
            "shared": {"frames": frames.table},
            "profiles": profiles,
            "name": excerpt(f"{incident.job.id}: {incident.verdict.summary}", 300),
            "activeProfileIndex": 0,
            "exporter": f"hangwatch {__version__}",
        }
    )


def _all_ranks(capture: Capture, frames: _Frames) -> dict[str, object]:
    last = [rank.stacks[-1].main for rank in capture.ranks if rank.stacks]
    samples = sorted(frames.stack(main.frames) for main in last if main is not None and main.frames)
    return _profile("all ranks, main threads", "none", samples, [1.0] * len(samples))


def _threads(rank: RankCapture, frames: _Frames, names: Mapping[int, str]) -> Iterator[dict[str, object]]:
    """Yield a profile for every thread with Python frames.

    A sample lasts until the next one, the last sample as long as the one before.
    """
    if not rank.stacks:
        return
    times_ns = [sample.at_ns for sample in rank.stacks]
    lasted_s = [max(after - before, 0) / 1e9 for before, after in pairwise(times_ns)]
    lasted_s.append(lasted_s[-1] if lasted_s else 1.0)
    found: dict[int, tuple[str, list[list[int]], list[float]]] = {}
    for sample, seconds in zip(rank.stacks, lasted_s, strict=True):
        for thread in sample.threads:
            if not thread.frames:
                continue
            name = "main thread" if thread.is_main else excerpt(thread.name or f"thread {thread.os_thread_id}", 80)
            _, samples, weights = found.setdefault(thread.os_thread_id, (name, [], []))
            samples.append(frames.stack(thread.frames))
            weights.append(seconds)
    for name, samples, weights in sorted(found.values(), key=lambda one: (one[0] != "main thread", one[0])):
        whose = name_guests(f"rank {rank.rank}", names)
        yield _profile(f"{whose}, {name}", "seconds", samples, weights)


def _profile(name: str, unit: str, samples: list[list[int]], weights: list[float]) -> dict[str, object]:
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
