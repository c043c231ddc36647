"""Connections between nodes that ranks are blocked on, and the processes at their other ends. Pure; may import the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.processes import ProcessSample, ThreadSample

_replace = msgspec.structs.replace
#: What runs below these waits for other ranks or for torch's store, and its connections lead to no process beside the job.
_OF_TORCH = "/torch/distributed/"
Sampled = TypeVar("Sampled", ProcessSample, ThreadSample)


def find_connections(capture: Capture) -> set[tuple[str, str]]:
    """Of those that are blocked on a connection to another node: their own ends and the other ones, ``HOST:PORT`` each."""
    found = set()
    for rank in capture.ranks:
        if rank.sample is None or _waits_for_ranks(rank):
            continue
        samples: list[ProcessSample | ThreadSample] = [rank.sample, *rank.sample.threads]
        found |= {(one.own_end, one.elsewhere) for one in samples if one.elsewhere}
    return found


def _waits_for_ranks(rank: RankCapture) -> bool:
    main = rank.stacks[-1].main if rank.stacks else None
    return main is not None and any(_OF_TORCH in frame.file for frame in main.frames)


def add_asked(capture: Capture, answers: Sequence[Capture]) -> Capture:
    """The capture with the processes that other nodes have found at the other ends, each end leading to its process.

    An end that two of them have leads to none: nodes may have one and the same address for what is on them.
    """
    ranks = {rank.rank: rank for rank in capture.ranks}
    found = [rank for answer in answers for rank in answer.ranks]
    having = Counter(end for one in found for end in one.serves)
    at = {end: one.rank for one in found for end in one.serves if having[end] == 1}
    if not at:
        return capture
    ranks |= {one.rank: _replace(one, serves=()) for one in found if one.identity.worldless}
    gaps = tuple(dict.fromkeys((*capture.gaps, *(gap for answer in answers for gap in answer.gaps))))
    return _replace(capture, ranks=tuple(_lead(ranks[number], at) for number in sorted(ranks)), gaps=gaps)


def _lead(rank: RankCapture, at: dict[str, int]) -> RankCapture:
    last = rank.sample
    if last is None:
        return rank
    threads = tuple(_lead_one(thread, at) for thread in last.threads)
    return _replace(rank, processes=(*rank.processes[:-1], _replace(_lead_one(last, at), threads=threads)))


def _lead_one(one: Sampled, at: dict[str, int]) -> Sampled:
    number = at.get(f"{one.own_end} {one.elsewhere}")
    return _replace(one, answering=number, elsewhere="") if number is not None else one
