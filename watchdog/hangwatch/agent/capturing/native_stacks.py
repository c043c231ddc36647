"""Adds to a capture all threads with their native frames, if the user asked for them.

May import the model and ``sources.stacks``. A process is paused while it is read, so only those of a confirmed hang
are read, and those that a person asks for.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from hangwatch.model.capture import Capture, Gap
from hangwatch.model.stacks import StackSample
from hangwatch.sources.stacks.native import sample_native


async def add_native_stacks(capture: Capture, ranks: Collection[int]) -> Capture:
    """Return the capture with the native stacks of those of ``ranks`` that live on this node."""
    alive = [r for r in capture.ranks if r.rank in ranks and r.sample is not None and not r.sample.ended]
    found = await sample_native([r.identity.pid for r in alive])
    gaps: list[Gap] = []
    seen: dict[int, StackSample] = {}
    for rank in alive:
        sample = found[rank.identity.pid]
        if isinstance(sample, Gap):
            gaps.append(Gap(sample.source, sample.reason, rank.rank, sample.hint))
        else:
            seen[rank.rank] = sample
    with_native = (msgspec.structs.replace(r, native=seen.get(r.rank, r.native)) for r in capture.ranks)
    gaps_of_all = tuple(dict.fromkeys((*capture.gaps, *gaps)))
    return msgspec.structs.replace(capture, ranks=tuple(with_native), gaps=gaps_of_all)
