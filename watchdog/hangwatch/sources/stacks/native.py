"""All threads of ranks with their native frames, read by pystack, which pauses a process while it reads it.

May import hangwatch.model, hangwatch.sources' own parts and the standard library. Used only if the user asks for it
(``--native-stacks``). py-spy shows only threads that run Python. Where all ranks have joined and nothing moves, the threads of
NCCL, torch and other libraries matter. Format: the text of ``pystack remote --native-all``, pystack 1.7.2.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence

from hangwatch.model.capture import Gap
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.proc.files import inner_pid
from hangwatch.sources.stacks.readers import explain_failure, find_program, run_reader
from hangwatch.sources.stacks.samples import cut_stack

SOURCE = "native stacks"
READER = "pystack"
_AT_ONCE = 4
#: Names of C++ templates can be thousands of characters long.
_NAME_LIMIT_CHARS = 160
_THREAD = re.compile(
    r"Traceback for thread (?P<id>\d+) (?:\((?P<name>.*?)\) )?\[(?P<flags>.*?)\] \(most recent call last\):$"
)
_FRAME = re.compile(r'    \((?P<kind>Python|C)\) File "(?P<file>.*?)", line (?P<line>\d+), in (?P<function>.*)$')
#: Behind the name of a native frame: the file of its code.
_LIBRARY = re.compile(r"(?P<function>.*) \((?P<library>/[^()]*)\)$")


async def sample_native(pids: Sequence[int], *, timeout_s: float = 10.0) -> dict[int, StackSample | Gap]:
    """Return the stacks of all threads of these processes, by pid; a Gap for each that cannot be read in ``timeout_s``.

    Native frames have the name of their library, and line 0.
    """
    program = find_program(READER)
    if program is None:
        return dict.fromkeys(pids, Gap(SOURCE, "pystack is not installed", hint="pip install 'pystack>=1.5'"))
    slots = asyncio.Semaphore(_AT_ONCE)

    async def sample(pid: int) -> StackSample | Gap:
        async with slots:
            result = await run_reader(program, ["remote", "--no-color", "--native-all", str(pid)], timeout_s)
        if result is None:
            return Gap(SOURCE, f"process {pid} could not be read within {timeout_s:g} s")
        _, output, complaint, at_ns = result
        threads = tuple(parse_pystack(output.decode(errors="replace"), pid=inner_pid(pid)))
        return StackSample(at_ns, threads) if threads else explain_failure(pid, complaint, READER, SOURCE)

    wanted = tuple(dict.fromkeys(pids))
    return dict(zip(wanted, await asyncio.gather(*map(sample, wanted)), strict=True))


def parse_pystack(text: str, *, pid: int) -> Iterator[ThreadStack]:
    """Yield the threads that ``pystack remote --native-all`` shows, frames deepest first. ``pid``: in its own namespace.

    Lines that are none of pystack's are left out.
    """
    head: re.Match[str] | None = None
    frames: list[Frame] = []
    for line in text.splitlines():
        begins, called = _THREAD.match(line), _FRAME.match(line)
        if begins:
            if head is not None:
                yield _make_thread(head, frames, pid)
            head, frames = begins, []
        elif called:
            frames.append(_make_frame(called))
    if head is not None:
        yield _make_thread(head, frames, pid)


def _make_thread(head: re.Match[str], frames: Sequence[Frame], pid: int) -> ThreadStack:
    number = int(head["id"])
    return ThreadStack(
        os_thread_id=number,
        name=head["name"],
        is_main=number == pid,
        active=False,
        owns_gil="Has the GIL" in head["flags"],
        frames=tuple(cut_stack(frames[::-1])),
    )


def _make_frame(called: re.Match[str]) -> Frame:
    if called["kind"] == "Python":
        return Frame(called["function"], called["file"], int(called["line"]))
    found = _LIBRARY.match(called["function"])
    function, file = (found["function"], found["library"]) if found else (called["function"], called["file"])
    return Frame(function.removesuffix(" (inlined)")[:_NAME_LIMIT_CHARS], file.rpartition("/")[2], 0)
