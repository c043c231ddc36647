"""Stacks as answers. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from hangwatch.assistant.answers import FrameAnswer, StackAnswer, ThreadAnswer
from hangwatch.assistant.paging import label, line
from hangwatch.model.capture import RankIdentity
from hangwatch.model.stacks import Frame, StackSample, ThreadStack

#: Per answer: threads, of each the deepest frames, of each frame some variables.
_THREADS, _FRAMES, _VARIABLES = 8, 40, 12
#: Of all of it together, as JSON: what is left of an answer that an agent reads at once (about four thousand tokens).
_CHARACTERS = 15_000


def describe_sample(sample: StackSample, identity: RankIdentity) -> StackAnswer:
    """Return the threads of a sample, the main one first, each with its deepest frames.

    As many as an answer may hold.
    """
    ordered = sorted(sample.threads, key=lambda thread: not thread.is_main)
    threads: list[ThreadAnswer] = []
    left = _CHARACTERS
    for thread in ordered[:_THREADS]:
        described = _thread(thread)
        left -= _size(replace(described, frames=()))
        kept = 0
        for frame in described.frames:
            left -= _size(frame)
            kept += left >= 0
        if left < 0 and not kept:
            break
        threads.append(replace(described, frames=described.frames[:kept]))
    return StackAnswer(
        rank=identity.rank,
        pid=identity.pid,
        node=line(identity.node),
        threads=tuple(threads),
        threads_total=len(ordered),
    )


def _thread(thread: ThreadStack) -> ThreadAnswer:
    return ThreadAnswer(
        name=line(thread.name or "unnamed"),
        is_main=thread.is_main,
        active=thread.active,
        frames=tuple(describe_frame(frame) for frame in thread.frames[:_FRAMES]),
        frames_total=len(thread.frames),
    )


def _size(answer: ThreadAnswer | FrameAnswer) -> int:
    return len(json.dumps(asdict(answer), ensure_ascii=False))


def describe_frame(frame: Frame) -> FrameAnswer:
    """Return a frame without ``values``, which it has if a user asked for them (``--with-values``)."""
    variables = list((frame.locals or {}).items())[:_VARIABLES]
    return FrameAnswer(
        function=line(frame.function),
        file=line(frame.file),
        line=frame.line,
        source=line(frame.source) if frame.source else None,
        variables=tuple(label(f"{name}: {shape}") for name, shape in variables),
    )
