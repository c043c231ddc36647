"""The text of the source lines a stack is at, read as the process itself sees the files.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. Through ``/proc/PID/root`` files of
another container are found too; a program that was given on the command line (``python -c``) is read from there. Only lines of
code somebody may have to look at are read: nothing of the standard library, nothing frozen. The blocks around a line are given,
but not those of torch itself: the job did not choose its branches. Torch's pipeline schedules are an exception: their blocks
say which stage is awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from hangwatch.model.collectives import FlightRecord, Operation
from hangwatch.model.stacks import Block, Fact, Frame, Position, StackSample, TaskStack, ThreadStack
from hangwatch.program.blocks import SourceTree
from hangwatch.program.deadlines import Countdown, Deadline, left_s
from hangwatch.program.positions import Holder
from hangwatch.sources.proc.files import read_arguments
from hangwatch.sources.proc.views import open_seen
from hangwatch.sources.redaction import redact_code
from hangwatch.sources.stacks.locals import marked_numbers, may_tell, settle_values

_FILE_LIMIT_BYTES = 4 << 20
_TREE_LIMIT_BYTES = 512 << 10
_LINE_LIMIT_CHARS = 300
_TIMEOUT_S = 1.0
#: About a kilobyte each.
_CACHE_LIMIT = 5_000
#: Of threads beside the main one so many frames are read, the deepest.
_SIDE_FRAMES = 16

#: The loop of a thread of a pool, and its variable for the call that it has been given (CPython 3.10 to 3.14).
_POOLS_WORKER, _POOLS_ITEM = "/concurrent/futures/thread.py", "work_item"
#: What Python calls the file of a program that it is given on its command line.
_OF_COMMAND = "<string>"

Place = tuple[str, int]
#: Name and identity, modification time and size of a file.
Version = tuple[str, int, int]
Key = tuple[Version, int]


class Line(msgspec.Struct, frozen=True):
    """A line of source, stripped, with what its file says of it.

    ``blocks``: those around it; none in torch itself. ``facts``: what else its function says of it. ``counters``: what
    counts iterations there. ``deciders``: the variables that the conditions of the function name. ``holders``: those
    that hold what its loops go through. ``deadlines``: when the loops around it end that go on until a time.
    ``function``: the qualified name of its function.
    """

    text: str
    blocks: tuple[Block, ...] = ()
    facts: tuple[Fact, ...] = ()
    counters: frozenset[str] = frozenset()
    deciders: frozenset[str] = frozenset()
    holders: tuple[Holder, ...] = ()
    deadlines: tuple[Deadline | Countdown, ...] = ()
    function: str = ""


class _File(msgspec.Struct):
    """A file that a process names, the ``numbers`` of the lines that are wanted, and its text; None where it is not needed."""

    pid: int
    name: str
    version: Version
    numbers: set[int]
    text: str | None


class SourceLines:
    """Reads lines, remembering them by file and modification time. One for the whole agent."""

    def __init__(self) -> None:
        self._lines: dict[Key, Line | None] = {}
        self._hanging: threading.Thread | None = None

    async def attach(
        self, samples: Mapping[int, StackSample], *, condition_values: bool = False
    ) -> dict[int, StackSample]:
        """Return the samples (by pid) with source in their frames; of side threads, in the deepest frames only.

        Lines are missing if a file does not answer. ``condition_values``: whether variables that a
        condition names keep their values.
        """
        found = await self._find({pid: _places_of(sample) for pid, sample in samples.items()})
        return {pid: _with_lines(sample, found.get(pid, {}), condition_values) for pid, sample in samples.items()}

    async def attach_to_record(self, pid: int, record: FlightRecord) -> FlightRecord:
        """Return the record with source in the frames of its call sites, of all files that answer."""
        places = {(f.file, f.line) for o in record.operations for f in o.frames or () if _is_worth_reading(f)}
        lines = (await self._find({pid: sorted(places)})).get(pid, {})
        if not lines:
            return record
        # The same few call sites come again and again: each frame is made once.
        frames: dict[Frame, Frame] = {}

        def with_source(operation: Operation) -> Operation:
            if not operation.frames:
                return operation
            for frame in operation.frames:
                if frame not in frames:
                    frames[frame] = _with_line(frame, lines)
            return msgspec.structs.replace(operation, frames=tuple(frames[f] for f in operation.frames))

        return msgspec.structs.replace(record, operations=tuple(with_source(o) for o in record.operations))

    async def attach_to_tasks(self, pid: int, tasks: Sequence[TaskStack]) -> tuple[TaskStack, ...]:
        """Return the tasks with source in their frames, of all files that answer."""
        places = {(f.file, f.line) for task in tasks for f in task.frames if _is_worth_reading(f)}
        lines = (await self._find({pid: sorted(places)})).get(pid, {}) if places else {}
        return tuple(
            msgspec.structs.replace(task, frames=tuple(_with_line(f, lines) for f in task.frames)) for task in tasks
        )

    def read(self, pid: int, places: Iterable[Place]) -> dict[Place, Line]:
        """Return lines by (file, line), without places that cannot be read. May block as long as the files do."""
        known = self._known()
        return _parse(list(_load({pid: places}, known)), known).get(pid, {})

    async def _find(self, wanted: Mapping[int, Sequence[Place]]) -> dict[int, dict[Place, Line]]:
        """Return lines by pid and place, of all files before one that does not answer in ``_TIMEOUT_S``.

        Files may lie on a file system that hangs (it may be why a rank does): they are read by a daemon thread that is
        left behind then, and no other is started until it returns. To parse them has no limit: it ends, and takes seconds
        on a loaded machine.
        """
        if not any(wanted.values()) or (self._hanging is not None and self._hanging.is_alive()):
            return {}
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        known, files = self._known(), list[_File]()

        def load() -> None:
            try:
                for file in _load(wanted, known):
                    files.append(file)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop was closed while a file hung
                    loop.call_soon_threadsafe(done.set)

        thread = threading.Thread(target=load, name="hangwatch-source-lines", daemon=True)
        thread.start()
        answered = -1
        while not done.is_set() and answered < len(files):
            answered = len(files)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(done.wait(), _TIMEOUT_S)
        if not done.is_set():
            self._hanging = thread
        return await asyncio.to_thread(_parse, list(files), known)

    def _known(self) -> dict[Key, Line | None]:
        """Return the cache of lines. When it is full, start a new one: other threads may still be reading the old one."""
        if len(self._lines) > _CACHE_LIMIT:
            self._lines = {}
        return self._lines


def _load(wanted: Mapping[int, Iterable[Place]], known: Mapping[Key, Line | None]) -> Iterator[_File]:
    """Yield the files of these places (by pid). A file that several processes have is read once."""
    loaded: set[Version] = set()
    for pid, places in wanted.items():
        by_file: dict[str, set[int]] = {}
        for name, number in places:
            by_file.setdefault(name, set()).add(number)
        for name, numbers in by_file.items():
            if name == _OF_COMMAND:
                source = _command_source(pid)
                yield _File(pid, name, ("-c", hash(source), len(source)), numbers, source)
                continue
            with contextlib.suppress(OSError, ValueError):
                file = _read(pid, name, numbers, loaded, known)
                if file.text is not None:
                    loaded.add(file.version)
                yield file


def _read(
    pid: int, name: str, numbers: set[int], loaded: Container[Version], known: Mapping[Key, Line | None]
) -> _File:
    """Return one file, with its text only if it is new. Raises OSError, ValueError."""
    with os.fdopen(open_seen(pid, name), "rb") as opened:
        status = os.fstat(opened.fileno())
        if status.st_size > _FILE_LIMIT_BYTES:
            raise OSError(errno.EFBIG, "larger than any source file")
        version = (f"{name} {status.st_dev}.{status.st_ino}", status.st_mtime_ns, status.st_size)
        there = version in loaded or all((version, number) in known for number in numbers)
        # No more than its size: files of /proc, where a link may lead, say that they have none.
        text = None if there else opened.read(status.st_size).decode(errors="replace")
    return _File(pid, name, version, numbers, text)


def _parse(files: Sequence[_File], known: dict[Key, Line | None]) -> dict[int, dict[Place, Line]]:
    """Return the lines of the files by pid and place, and add them to ``known``."""
    wanted: dict[Version, set[int]] = {}
    for file in files:
        wanted.setdefault(file.version, set()).update(file.numbers)
    for file in files:
        if file.text is None:
            continue
        lines = file.text.split("\n")
        tree = SourceTree(file.text) if len(file.text) <= _TREE_LIMIT_BYTES and _has_blocks(file.name) else None
        for number in wanted[file.version]:
            if (file.version, number) not in known:
                there = 0 < number <= len(lines)
                known[file.version, number] = _make_line(lines[number - 1], number, tree) if there else None
    found: dict[int, dict[Place, Line]] = {}
    for file in files:
        lines_of = ((number, known.get((file.version, number))) for number in file.numbers)
        found.setdefault(file.pid, {}).update({(file.name, n): line for n, line in lines_of if line is not None})
    return found


def shorten(text: str) -> str:
    """Return the text of a line as it is kept: short, without secrets that somebody has written into it."""
    return redact_code(text.strip())[:_LINE_LIMIT_CHARS]


def annotate(tree: SourceTree, number: int) -> tuple[tuple[Block, ...], tuple[Fact, ...]]:
    """Return the blocks and facts of a line as they are kept. Raises RecursionError of a thousand branches of one `if`."""
    blocks = (
        msgspec.structs.replace(one, text=redact_code(one.text), exits=tuple(map(redact_code, one.exits)))
        for one in tree.blocks_at(number)
    )
    facts = (Fact(one.kind, redact_code(one.text)) for one in tree.facts_at(number))
    return tuple(blocks), tuple(facts)


def _make_line(text: str, number: int, tree: SourceTree | None) -> Line:
    """Return the line as it is kept."""
    short = shorten(text)
    if tree is None:
        return Line(short)
    try:
        blocks, facts = annotate(tree, number)
        names = (tree.counters_at(number), tree.deciders_at(number), tree.holders_at(number))
        deadlines = tree.deadlines_at(number)
        function = tree.function_at(number)
    except RecursionError:
        return Line(short)
    return Line(short, blocks, facts, *names, deadlines, function)


#: The lines read by this process, remembered for all who ask.
shared = SourceLines()


def _is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return "/site-packages/" in file or "/dist-packages/" in file


def _is_torch(file: str) -> bool:
    """Return whether a file belongs to installed torch."""
    return _is_installed(file) and "-packages/torch/" in file


def _has_blocks(file: str) -> bool:
    """Return whether the blocks around the file's lines are given."""
    return not _is_torch(file) or file.endswith("torch/distributed/pipelining/schedules.py")


def _is_worth_reading(frame: Frame) -> bool:
    """Return whether it is a line of a file that is not part of the standard library."""
    if frame.line <= 0:
        return False
    if frame.file == _OF_COMMAND:  # functions that a library makes while it runs are of a file with this name too
        return frame.function == "<module>"
    if not frame.file.endswith(".py"):
        return False
    parts = frame.file.split("/")
    library = any(part.startswith("python3") and parts[i - 1] in {"lib", "lib64"} for i, part in enumerate(parts) if i)
    return _is_installed(frame.file) or not library


def _command_source(pid: int) -> str:
    """Return the program of a process run as ``python -c PROGRAM``; empty for any other process."""
    for option, value in pairwise(read_arguments(pid)[1:]):
        if not option.startswith("-"):
            break
        if option.endswith("c") and not option.startswith("--"):
            return value
    return ""


def _places_of(sample: StackSample) -> list[Place]:
    """Return the lines of a sample that are worth reading."""
    frames = (frame for thread in sample.threads for frame in _frames_to_read(thread))
    return sorted({(frame.file, frame.line) for frame in frames if _is_worth_reading(frame)})


def _frames_to_read(thread: ThreadStack) -> tuple[Frame, ...]:
    """Return all frames of the main thread; of any other thread, only what it is doing right now."""
    return thread.frames if thread.is_main else thread.frames[:_SIDE_FRAMES]


def _with_lines(sample: StackSample, lines: Mapping[Place, Line], condition_values: bool) -> StackSample:
    """Return the sample with source where it is known.

    Values stay only where the source allows it, so none stay where no source was read.
    """
    threads = tuple(_with_source(thread, lines, condition_values) for thread in sample.threads)
    return msgspec.structs.replace(sample, threads=threads)


def _with_source(thread: ThreadStack, lines: Mapping[Place, Line], condition_values: bool) -> ThreadStack:
    """Return the thread with source in its frames."""
    frames = tuple(_with_line(frame, lines, condition_values) for frame in thread.frames)
    return msgspec.structs.replace(thread, frames=frames)


def _with_line(frame: Frame, lines: Mapping[Place, Line], condition_values: bool = False) -> Frame:
    """Return the frame with its source."""
    line = lines.get((frame.file, frame.line))
    if frame.locals:
        counters = line.counters if line is not None else frozenset()
        deciders = line.deciders if line is not None and condition_values else frozenset()
        settled = settle_values(frame.locals, counters, deciders)
        left = left_s(line.deadlines, marked_numbers(frame.locals)) if line is not None and line.deadlines else None
        ends_in_s, early_s = left if left is not None else (None, 0.0)
        positions = _settle_positions(frame, settled, line.holders if line is not None else ())
        frame = msgspec.structs.replace(
            frame, locals=settled, positions=positions, ends_in_s=ends_in_s, early_s=early_s
        )
    if line is None:
        return frame
    # The flight recorder, and py-spy before Python 3.11, have the bare name.
    function = line.function if line.function.rpartition(".")[2] == frame.function else frame.function
    return msgspec.structs.replace(frame, source=line.text, blocks=line.blocks, facts=line.facts, function=function)


def _settle_positions(frame: Frame, described: Mapping[str, str], holders: Sequence[Holder]) -> tuple[Position, ...]:
    """Return, of the digests of all variables, those that show how far a loop is."""
    digests = {one.variable: one.digest for one in frame.positions}
    if frame.file.endswith(_POOLS_WORKER):
        return tuple(Position(name, 0, digest) for name, digest in digests.items() if name == _POOLS_ITEM)
    return tuple(
        Position(one.name, one.loop, digests[one.name])
        for one in holders
        if one.name in digests and may_tell(described.get(one.name, ""), numbers=one.numbers, objects=one.objects)
    )
