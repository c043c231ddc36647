"""Stacks that torch's debug server dumps, or that the server of one rank answers with. Pure.

May import hangwatch.model and hangwatch.sources' own parts. Format: ``torch/distributed/debug/_debug_handlers.py`` and
``_frontend.py`` of torch 2.13: every ``dump_interval`` the ``PeriodicDumper`` writes ``HANDLER_YYYYmmdd_HHMMSS.txt``, in
which ``=== Rank N: URL ===`` heads what rank N's server has answered. The URL ends in the name of what was asked for:
``dump_traceback`` is CPython's ``faulthandler`` (``Python/traceback.c`` of 3.10 to 3.14: at most 100 threads, the main thread
last, names from 3.14 on), ``pyspy_dump`` is py-spy's text. If a server does not answer, the file begins with ``PARTIAL
DATA``, and a line for each such rank says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.dumps.pyspy_text import ProcessStack, parse_pyspy_text
from hangwatch.sources.stacks.samples import StackFormatError, cut_stack

_RANK = re.compile(r"=== Rank (\d{1,7}): (\S+)/handler/(\w+)\?\S* ===")
_SILENT = re.compile(r"  Rank (\d{1,7}): (.*)")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-fA-F]{1,16})(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)')
_TRACEBACKS, _PYSPY = "dump_traceback", "pyspy_dump"


class DebugDump(msgspec.Struct, frozen=True):
    """One file of the dump directory. ``silent``: by rank, why its server did not answer."""

    handler: str
    processes: tuple[ProcessStack, ...]
    silent: dict[int, str]


class LastStacks(msgspec.Struct, frozen=True):
    """The stacks of the newest dump. ``moved``: ranks whose main thread was elsewhere in the dump before."""

    name: str
    processes: tuple[ProcessStack, ...] = ()
    silent: dict[int, str] = {}
    moved: tuple[int, ...] = ()


def parse_debug_dump(data: bytes, *, at_ns: int) -> DebugDump | None:
    """Return the ranks of one file; None if it has no stacks (those of other handlers look alike)."""
    lines = data.decode("utf-8", "replace").splitlines()
    heads = [(at, head) for at, line in enumerate(lines) if (head := _RANK.fullmatch(line))]
    if not heads or heads[0][1][3] not in {_TRACEBACKS, _PYSPY}:
        return None
    silent = {int(said[1]): said[2][:200] for line in lines[: heads[0][0]] if (said := _SILENT.fullmatch(line))}
    processes = []
    for (at, head), end in zip(heads, [*(at for at, _ in heads[1:]), len(lines)], strict=True):
        rank, text = int(head[1]), "\n".join(lines[at + 1 : end]).encode()
        try:
            if rank not in silent:
                read = parse_traceback if head[3] == _TRACEBACKS else parse_pyspy_text
                processes.append(msgspec.structs.replace(read(text, at_ns=at_ns)[0], rank=rank))
        except StackFormatError as error:
            silent[rank] = str(error)
    return DebugDump(heads[0][1][3], tuple(processes), silent)


def is_traceback(head: bytes) -> bool:
    """True for what one server answers, by its beginning."""
    return any(map(_THREAD.fullmatch, head.decode("utf-8", "replace").lstrip().splitlines()[:1]))


def parse_traceback(data: bytes, *, at_ns: int) -> tuple[ProcessStack]:
    """Return the process whose threads ``faulthandler`` shows. Raises ``StackFormatError`` if none has a frame."""
    lines = data.decode("utf-8", "replace").splitlines()
    heads = [(at, head) for at, line in enumerate(lines) if (head := _THREAD.fullmatch(line))]
    last = None if "..." in lines else len(heads) - 1  # more than a hundred: the main thread is not among them
    threads = []
    for number, ((at, head), end) in enumerate(zip(heads, [*(at for at, _ in heads[1:]), len(lines)], strict=False)):
        if frames := tuple(cut_stack(list(_read_frames(lines[at + 1 : end])))):  # the thread that answers has none
            threads.append(ThreadStack(0, head[2], number == last, False, False, frames, int(head[1], 16)))
    if not threads:
        raise StackFormatError("the traceback holds no stack")
    ordered = sorted(threads, key=lambda thread: not thread.is_main)
    return (ProcessStack(0, "", StackSample(at_ns, tuple(ordered))),)


def _read_frames(lines: Sequence[str]) -> Iterator[Frame]:
    for line in lines:
        if (frame := _FRAME.fullmatch(line)) is not None:
            yield Frame(frame[3], frame[1], int(frame[2]) if frame[2].isdigit() else 0)


def keep_last(dumps: Sequence[tuple[str, DebugDump]]) -> list[tuple[str, DebugDump]]:
    """Return the last two dumps of each handler, by file, in order of the times in the files' names."""
    ordered = sorted(dumps, key=lambda one: one[0].rpartition("/")[2])
    return [one for h in (_TRACEBACKS, _PYSPY) for one in [o for o in ordered if o[1].handler == h][-2:]]


def take_last(dumps: Sequence[tuple[str, DebugDump]]) -> LastStacks:
    """Return what the newest of the dumps, by file, shows; of two handlers', the one that more ranks have answered.

    Dumps are a minute apart by default: what a rank did before the newest one says nothing of a hang.
    """
    by_handler = [found for h in (_TRACEBACKS, _PYSPY) if (found := [o for o in keep_last(dumps) if o[1].handler == h])]
    if not by_handler:
        return LastStacks("")
    *before, (name, last) = max(by_handler, key=lambda found: len(found[-1][1].processes))
    places = {p.rank: p.sample.main_frames for _, d in before for p in d.processes}
    moved = (p.rank for p in last.processes if places.get(p.rank, p.sample.main_frames) != p.sample.main_frames)
    return LastStacks(name, last.processes, last.silent, tuple(rank for rank in moved if rank is not None))
