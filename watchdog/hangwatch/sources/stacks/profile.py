"""Where the main thread of a process spends its time: many looks at its stack by one py-spy, without a pause.

May import hangwatch.model, ``analysis.places``, hangwatch.sources' own parts, msgspec and the standard library. Format:
speedscope's file format (``sampled`` profiles, https://www.speedscope.app/file-format-schema.json), as ``py-spy record --format
speedscope`` of 0.4.3 writes it: a profile for each thread, ``Thread PID "NAME"``; the frames of a sample go from the outermost
to the deepest, and the first one stands for the thread. On its standard output the file is one line among others. Four seconds
of looks at a small program take py-spy 70 ms of CPU time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from statistics import fmean

import msgspec

from hangwatch.analysis.places import FETCHES, calls
from hangwatch.model.capture import Gap
from hangwatch.model.slowness import PROFILE_RATE_HZ, ProfiledStack
from hangwatch.model.stacks import Frame
from hangwatch.sources.proc.files import inner_pid
from hangwatch.sources.proc.samples import find_workers
from hangwatch.sources.stacks.readers import explain_failure, find_program, run_reader
from hangwatch.sources.stacks.samples import READER, SOURCE, StackFormatError, cut_stack

#: It starts within a second and ends within one, on a busy node within some more.
_MORE_S = 10.0
#: The most frequent stacks are kept; the rest would not be read.
_STACKS = 40
#: The workers of a DataLoader are alike.
_WORKERS = 4
#: Where they run.
_WORKER = "torch/utils/data/_utils/worker.py"


class _Frame(msgspec.Struct):
    name: str
    file: str | None = None
    line: int | None = None


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _Thread(msgspec.Struct):
    name: str
    samples: list[list[int]]


class _Profiles(msgspec.Struct):
    shared: _Shared
    profiles: list[_Thread]


async def profile_stacks(pid: int, seconds: float) -> tuple[int, tuple[ProfiledStack, ...]] | Gap:
    """Return how often the main thread was looked at in ``seconds``, and its stacks; a Gap if it cannot be read."""
    program = find_program(READER)
    if program is None:
        return Gap(SOURCE, "py-spy is not installed", hint="pip install py-spy")
    arguments = [
        "record", "--nonblocking", "--idle", "--threads", "--full-filenames", "--rate", str(PROFILE_RATE_HZ), "--duration",
        str(max(1, round(seconds))), "--format", "speedscope", "--output", "/dev/stdout", "--pid", str(pid),
    ]  # fmt: skip
    result = await run_reader(program, arguments, seconds + _MORE_S)
    if result is None:
        return Gap(SOURCE, f"process {pid} could not be watched within {seconds + _MORE_S:g} s")
    code, output, complaint, _ = result
    if code != 0:
        return explain_failure(pid, complaint, READER)
    try:
        return parse_profile(output, inner_pid(pid))
    except StackFormatError as error:
        return Gap(SOURCE, f"process {pid}: {error}", hint="use py-spy 0.4 or newer: pip install -U py-spy")


async def profile_workers(pid: int, seconds: float) -> float | None:
    """Return the share of the time in which the workers of a process's DataLoaders load something, on average.

    None if it has none. A worker that has nothing to load is where it takes the next index.
    """
    seen = await asyncio.gather(*(profile_stacks(worker, seconds) for worker in find_workers(pid, _WORKERS)))
    stacks = [one[1] for one in seen if isinstance(one, tuple)]
    shares = [
        sum(stack.share for stack in ones if calls(stack.frames, FETCHES))
        for ones in stacks
        if any(calls(stack.frames, _WORKER) for stack in ones)
    ]
    return fmean(shares) if shares else None


def parse_profile(data: bytes, pid: int) -> tuple[int, tuple[ProfiledStack, ...]]:
    """Return how often the main thread was seen, and its stacks, the most frequent first. Raises ``StackFormatError``.

    ``pid`` is the process's own, in its PID namespace. Frames that a sample names and the file lacks are left out.
    """
    line = next((line for line in data.splitlines() if line.startswith(b"{")), b"")
    try:
        found = msgspec.json.decode(line, type=_Profiles)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StackFormatError(f"py-spy's profile cannot be read: {error}") from None
    by_name = {thread.name: thread.samples for thread in found.profiles}
    main = next((by_name[name] for name in by_name if name.split(" ")[1:2] == [str(pid)]), None)
    if main is None:
        main = next((by_name[name] for name in by_name if name.endswith('"MainThread"')), [])
    counted = Counter(tuple(sample[1:]) for sample in main)
    known = found.shared.frames
    stacks = []
    for places, count in counted.most_common(_STACKS):
        frames = tuple(
            Frame(known[at].name, known[at].file or "", max(0, known[at].line or 0))
            for at in reversed(places)
            if 0 <= at < len(known)
        )
        stacks.append(ProfiledStack(tuple(cut_stack(frames)), count / len(main)))
    return len(main), tuple(stacks)
