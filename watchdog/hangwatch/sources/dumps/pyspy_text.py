"""Stacks as ``py-spy dump`` prints them for people. Pure; may import hangwatch.model and hangwatch.sources' own parts.

Format: py-spy 0.4 (``src/dump.rs``, ``print_traces``), the same since 0.3: a line ``Process PID: COMMAND`` (the command may run
over several lines), ``Python vX (PATH)``, then for each thread ``Thread ID (STATE): "NAME"`` and its frames, deepest first,
``    FUNCTION (FILE:LINE)``, each followed under ``--locals`` by ``Arguments:`` and ``Locals:`` with a line a variable. Files are
relative to the module path. Under ``--native`` frames of native code are between them, which are left out. Output of several
processes may follow each other in one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.stacks.samples import StackFormatError, cut_stack, describe_locals

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"Process (\d{1,10}):(.*)")
_THREAD = re.compile(r"Thread (0x[0-9a-fA-F]{1,16}|\d{1,20}) \(([a-z+]{1,20})\)(?:: \"(.*)\")?")
_FRAME = re.compile(r" {4}(\S.*?) \(([^()]*?)(?::(\d{1,9}))?\)")
_LOCAL = re.compile(r" {12}([^\s:]{1,200}): (.*)")
_THREADS_LIMIT = 4096
_PROCESSES_LIMIT = 4096


class ProcessStack(msgspec.Struct, frozen=True):
    """The stacks of one process.

    ``pid``: 0 if unknown. ``command``: its command line, as far as printed. ``rank``: None if the content does not tell.
    """

    pid: int
    command: str
    sample: StackSample
    rank: int | None = None


def parse_pyspy_text(data: bytes, *, at_ns: int) -> tuple[ProcessStack, ...]:
    """Return all processes of the text, in its order.

    Raises ``StackFormatError`` if no thread has a frame.
    """
    lines = _COLOUR.sub("", data.decode("utf-8", "replace")).splitlines() or [""]
    starts = [at for at, line in enumerate(lines) if _PROCESS.fullmatch(line)][:_PROCESSES_LIMIT]
    if not starts:
        starts = [0]  # the head was cut off; the threads still tell
    found = []
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        head = _PROCESS.fullmatch(lines[at])
        pid, command = (int(head[1]), head[2].strip()) if head else (0, "")
        threads = tuple(_read_threads(lines[at:end], pid))
        if threads:
            ordered = sorted(threads, key=lambda thread: not thread.is_main)
            found.append(ProcessStack(pid, command[:4096], StackSample(at_ns, tuple(ordered))))
    if not found:
        raise StackFormatError("py-spy's text holds no stack")
    return tuple(found)


def _read_threads(lines: Sequence[str], pid: int) -> Iterator[ThreadStack]:
    """Yield those threads of one process that have frames."""
    heads = [(at, head) for at, line in enumerate(lines) if (head := _THREAD.fullmatch(line.rstrip()))][:_THREADS_LIMIT]
    named = any(head[3] == "MainThread" for _, head in heads)
    ends = [at for at, _ in heads[1:]] + [len(lines)]
    for (at, head), end in zip(heads, ends, strict=False):  # without a head there is an end all the same
        frames = tuple(_read_frames(lines[at + 1 : end]))
        if not frames:
            continue
        number = int(head[1], 0) if head[1].startswith("0x") else int(head[1])
        system = 0 if head[1].startswith("0x") else number
        is_main = head[3] == "MainThread" if named else (system == pid and pid > 0)
        ident = 0 if system else number
        yield ThreadStack(system, head[3] or None, is_main, "active" in head[2], "gil" in head[2], frames, ident)


def is_python(file: str, line: int) -> bool:
    """True for a frame of Python code; under ``--native`` there are also frames of libraries."""
    return file.endswith((".py", ".pyc")) or file.startswith("<") or (line > 0 and "." not in file.rpartition("/")[2])


def _read_frames(lines: Sequence[str]) -> Iterator[Frame]:
    """Yield the frames of one thread with their locals as far as printed."""
    heads = [(at, head) for at, line in enumerate(lines) if (head := _FRAME.fullmatch(line.rstrip()))]
    ends = [at for at, _ in heads[1:]] + [len(lines)]
    for (at, head), end in cut_stack(list(zip(heads, ends, strict=False))):
        shown = [(local[1], local[2]) for line in lines[at + 1 : end] if (local := _LOCAL.fullmatch(line.rstrip()))]
        file = head[2]
        if not is_python(file, int(head[3] or 0)):
            continue
        yield Frame(head[1], file, int(head[3] or 0), locals=describe_locals(file, shown) if shown else None)
