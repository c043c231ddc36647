"""Whether a rank is at another item or iteration of a loop than before: that is motion, however little it costs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

from msgspec.structs import replace

from hangwatch.analysis.places import is_interpreter, package_of
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Block, Frame, Position, StackSample, ThreadStack

#: A loop by its thread, the depth and place of its frame, its line and the variable that holds its items.
_Loop = tuple[int, int, str, str, int, str]
#: Where a main thread is that waits for another one of its process.
_HANDOVERS = ("/threading.py", "/queue.py", "/concurrent/futures/")
#: A comparison with a clock: ``time.monotonic() > deadline``, ``deadline < time.time()``, ``time.time() - began > limit``.
_CLOCK = re.compile(r"\b(?:time|monotonic|perf_counter)\(\)[^<>]*[<>]|[<>][^<>]*\b(?:time|monotonic|perf_counter)\(\)")
#: A loop for as long as a file is there, and nothing else.
_IS_THERE = re.compile(r"while (?!.*\bnot\b)[^=<>]*\b(?:exists|lexists|is_file|isfile)\([^()]*\):$")
#: Two ends of one sleep, as they are read, are no further from each other.
_OTHER_SLEEP_S = 0.05
#: How deep ``SocketIO.readinto`` is at most: below it is ssl's ``recv_into`` and ``read``.
BELOW_A_SOCKET = 3
#: As often at least an event loop wakes that gets on: once it may for a signal, and every 20 s for a connection's heartbeat.
_WAKES = 2
_WAKES_PER_S = 0.4
#: A loop that reads what is sent to its end, and compares it with nothing.
_TAKES = re.compile(r"while \(?\w+ := [\w.]+\.(?:read|recv)\w*\([^()]*\)\)?:$")


def main_place(sample: StackSample) -> tuple[tuple[str, str, int], ...]:
    """The calls of the main thread, none where it was not seen. A signal handler that is stuck is called within itself again and
    again: that is one place. What calls itself from another line than it is in goes on."""
    frames = sample.main.frames if sample.main is not None else ()
    places = [(f.file, f.function, f.line) for f in frames]
    again = sum(1 for _ in takewhile(lambda place: place == places[0], places[1:]))
    return tuple(places[again:])


def polls_throughout(stacks: Sequence[StackSample]) -> bool:
    """Whether the main thread is in one ``while`` with a sleep in every sample, at whatever line of it: it asks the same again.

    What the loop calls of the program or of a library may be work.
    """
    paths = [tuple(reversed(s.main.frames)) for s in stacks if s.main is not None]
    found = next(((p, i) for p in paths for i, f in enumerate(p) if _polls(f)), None)
    if found is None or len(paths) < len(stacks):
        return False
    known, depth = found
    loop = _loops(known[depth])[-1]
    above = [(f.file, f.function, f.line) for f in known[:depth]]

    def is_there(path: tuple[Frame, ...]) -> bool:
        here = path[depth] if len(path) > depth else None
        same = here is not None and (here.file, here.function) == (known[depth].file, known[depth].function)
        lines = {b.line for b in here.blocks if b.kind == loop.kind} | {here.line} if here is not None else set()
        around = loop.line in lines
        outside = [(f.file, f.function, f.line) for f in path[:depth]] == above
        return same and around and outside and all(is_interpreter(f) for f in path[depth + 1 :])

    return all(map(is_there, paths))


def _polls(frame: Frame) -> bool:
    loops = _loops(frame)
    return _sleeps(frame) and bool(loops) and _may_go_round(loops[-1])


def counts_on(stacks: Sequence[StackSample]) -> bool:
    """Whether the main thread is in a later iteration of a loop than before, of one that the number of iterations alone ends.

    Between its iterations it may sleep, as an upload at a server's pace does. A loop that polls counts its attempts too, but
    something else ends it: those say nothing.
    """
    numbers = [_iteration_numbers(s) for s in stacks]
    return any(
        after[loop] > number for before, after in pairwise(numbers) for loop, number in before.items() if loop in after
    )


def _iteration_numbers(sample: StackSample) -> dict[tuple[int, str, str, int], int]:
    """In which iteration the main thread is of each such loop, by the depth and place of the loop."""
    frames = sample.main.frames if sample.main is not None else ()
    return {
        (depth, frame.file, frame.function, block.line): int(described.removeprefix("int="))
        for depth, frame in enumerate(reversed(frames))
        for block in frame.blocks
        if block.iterations is not None
        and block.iterations.bounded
        and (described := (frame.locals or {}).get(block.iterations.counter, "")).startswith("int=")
    }


def goes_through_data(stacks: Sequence[StackSample]) -> bool:
    """Whether a loop over data is at another item than in a sample before.

    Items that come again say nothing in a ``while`` that may go on for ever: so does a poll of several things, one after another.
    The main thread is looked at, and where that waits for another thread of its process, all of them.
    """
    seen: dict[_Loop, set[str]] = {}
    for sample in stacks:
        for loop, one, any_other in _positions(sample):
            items = seen.setdefault(loop, set())
            if items and one.digest not in items and (any_other or not one.known):
                return True
            items.add(one.digest)
    return False


def mark_known(sample: StackSample, earlier: Iterable[StackSample]) -> StackSample:
    """The sample, with what is known of its items by samples before it, which need not be kept for that."""
    seen = {(loop, one.digest) for before in earlier for loop, one in _all_positions(before)}
    if not any((loop, one.digest) in seen for loop, one in _all_positions(sample)):
        return sample

    def mark(thread: ThreadStack, depth: int, frame: Frame) -> Frame:
        known = (replace(p, known=(_key(thread, depth, frame, p), p.digest) in seen) for p in frame.positions)
        return replace(frame, positions=tuple(known)) if frame.positions else frame

    return replace(
        sample,
        threads=tuple(
            replace(t, frames=tuple(mark(t, len(t.frames) - n, f) for n, f in enumerate(t.frames)))
            for t in sample.threads
        ),
    )


def _all_positions(sample: StackSample) -> Iterator[tuple[_Loop, Position]]:
    for thread in sample.threads:
        for number, frame in enumerate(thread.frames):
            for one in frame.positions:
                yield _key(thread, len(thread.frames) - number, frame, one), one


def _key(thread: ThreadStack, depth: int, frame: Frame, one: Position) -> _Loop:
    return thread.ident, depth, frame.file, frame.function, one.loop, one.variable


def _positions(sample: StackSample) -> Iterator[tuple[_Loop, Position, bool]]:
    """The loops that a process is in and where, and whether any other item than the ones before is progress."""
    main = sample.main
    # Calls that a loop gives to a pool may ask the same again and again.
    hands_on = main is not None and any(map(_is_in_while, main.frames))
    own = (main,) if main is not None else ()
    for thread in sample.threads if hands_over(sample) else own:
        polls = False
        for depth, frame in enumerate(reversed(thread.frames), 1):
            whole = {b.line for b in takewhile(lambda b: not _may_go_round(b), frame.blocks) if b.exhausts}
            for one in frame.positions:
                if one.loop or not hands_on:
                    yield _key(thread, depth, frame, one), one, not polls and one.loop in whole
            polls |= _is_in_while(frame)


def hands_over(sample: StackSample) -> bool:
    """Whether the main thread waits for another one of its process, be it for the answer of a server that it has begun itself."""
    frames = sample.main.frames if sample.main is not None else ()
    if not frames:
        return False
    reads = any(f.file.endswith("/socket.py") for f in frames[:BELOW_A_SOCKET])
    return any(part in frames[0].file for part in _HANDOVERS) or (reads and any(map(_answers, sample.threads)))


def _answers(thread: ThreadStack) -> bool:
    """Whether a thread handles a request (``BaseServer.finish_request``, CPython 3.10 to 3.14)."""
    return any(f.file.endswith("/socketserver.py") and f.function.endswith("finish_request") for f in thread.frames)


def children_go_on(samples: Sequence[ProcessSample]) -> bool:
    """Whether a child's loop over data is at an item that it was not at before, or has slept between two items and woken."""
    seen: dict[tuple[int, int, str], set[str]] = {}
    wakes_s: dict[int, float] = {}
    # Where a child's time is too short for both, its stack may be read after the sleep that the kernel showed.
    between = {child.pid for sample in samples for child in sample.children if child.between_items}
    for sample in samples:
        for child in sample.children:
            for one in child.positions:
                known = seen.setdefault((child.pid, one.loop, one.variable), set())
                if known and one.digest not in known:
                    return True
                known.add(one.digest)
            if child.pid in between and child.sleep_left_s is not None:
                at_s = sample.at_ns / 1e9 + child.sleep_left_s
                if at_s - wakes_s.setdefault(child.pid, at_s) > _OTHER_SLEEP_S:
                    return True
    return False


def tasks_go_on(stacks: Sequence[StackSample], samples: Sequence[ProcessSample]) -> bool:
    """Whether the main thread's event loop wakes for tasks, all of which end with their data: there are only so many answers.

    Tasks are on no stack while they wait, and a loop in which none can go on does not wake: measured in 32 hangs.
    """
    paths = [s.main.frames for s in stacks if s.main is not None]
    if len(paths) < len(stacks) or not all(map(_is_for_tasks_that_end, paths)):
        return False
    woken = [(s.at_ns, s.switches) for s in samples if s.switches is not None]
    if not woken:
        return False
    (began_ns, first), (ended_ns, last) = woken[0], woken[-1]
    return last - first >= max(_WAKES, _WAKES_PER_S * (ended_ns - began_ns) / 1e9)


def _is_for_tasks_that_end(frames: Sequence[Frame]) -> bool:
    """Whether these frames are in asyncio's wait for the next event (``BaseEventLoop._run_once``, CPython 3.10 to 3.14)."""
    waits = any(f.file.endswith("asyncio/base_events.py") and f.function.endswith("_run_once") for f in frames[:2])
    own = next((f for f in frames if f.blocks), None)
    return waits and own is not None and any(b.kind == "coroutines" for b in own.blocks)


def will_retry(stacks: Sequence[StackSample]) -> bool:
    """Whether the main thread sleeps where it has caught an exception, in a loop: it will try again what has failed."""
    main = stacks[-1].main if stacks else None
    return main is not None and retries(main.frames)


def gives_up(stacks: Sequence[StackSample]) -> bool:
    """Whether the main thread sleeps in a loop that ends at a time of its own, whatever it waits for."""
    main = stacks[-1].main if stacks else None
    if main is None or not main.frames or not _sleeps(main.frames[0]):
        return False
    blocks = main.frames[0].blocks
    loop = next((i for i, b in enumerate(blocks) if b.kind in {"for", "while"}), len(blocks))
    return any(b.kind in {"while", "guard"} and _CLOCK.search(b.text) for b in blocks[loop:])


def retries(frames: Sequence[Frame]) -> bool:
    """The same of one path."""
    if not frames or not _sleeps(frames[0]) or sleeps_for_file(frames[0]):
        return False  # where it looks for a file, it is for somebody else to remove that
    kinds = [b.kind for b in frames[0].blocks]
    return "except" in kinds and any(kind in {"for", "while"} for kind in kinds[: kinds.index("except")])


def sleeps_between_items(stacks: Sequence[StackSample]) -> bool:
    """Whether the main thread sleeps, as it did before, in a loop that ends with its data: when it woke, it was at the next item.

    That is so if the sleep is in no other loop, and no ``while`` is around this one.
    """
    if len(stacks) < 2 or main_place(stacks[-1]) != main_place(stacks[0]):
        return False
    main = stacks[-1].main
    return main is not None and is_between_items(main.frames)


def is_between_items(frames: Sequence[Frame]) -> bool:
    """Whether these frames are in a sleep behind which is the next item of a loop that ends with its data."""
    if not frames or not _sleeps(frames[0]) or package_of(frames[0]) == "torch":
        return False  # the blocks of torch's own code are not read: it may sleep in a loop
    inner = list(takewhile(lambda f: f.source is not None and not _around(f) and not _is_condition(f), frames))
    rest = frames[len(inner) :]
    if not rest or not _around(rest[0]):
        return False
    return _around(rest[0])[-1].exhausts and not any(map(_is_in_while, rest))


def sleeps_for_file(frame: Frame) -> bool:
    """Whether a line sleeps because a file is there that another process has made and is to remove, in a loop: a lock file."""
    kinds, loops = [b.kind for b in frame.blocks], _loops(frame)
    caught = "except" in kinds and "FileExistsError" in frame.blocks[kinds.index("except")].text
    return _sleeps(frame) and bool(loops) and (caught or _IS_THERE.match(loops[-1].text) is not None)


def asks(stacks: Sequence[StackSample]) -> bool:
    """Whether the innermost loop that the main thread is in is a ``while``: it may go on until the answer is another."""
    main = stacks[-1].main if stacks else None
    frames = main.frames if main is not None else ()
    looping = next((frame for frame in frames if _loops(frame) or _is_condition(frame)), None)
    return looping is not None and (_is_condition(looping) or _may_go_round(_loops(looping)[-1]))


def _is_in_while(frame: Frame) -> bool:
    return _is_condition(frame) or any(map(_may_go_round, _around(frame)))


def _around(frame: Frame) -> list[Block]:
    """The loops around a line, but for the innermost where that ends at a time: behind it comes what is around that."""
    found = _loops(frame)
    return found[:-1] if frame.ends_in_s is not None and found and found[-1].kind == "while" else found


def _may_go_round(block: Block) -> bool:
    """Whether it is a loop that may go on for ever."""
    return block.kind == "while" and not block.exhausts


def _is_condition(frame: Frame) -> bool:
    """Whether a frame is in the condition of a ``while``, around whose own line there is no block of it.

    One that takes what comes until there is no more (``while piece := response.read(4096):``) is over data.
    """
    source = frame.source or ""
    return source.startswith("while ") and not _TAKES.match(source)


def _sleeps(frame: Frame) -> bool:
    return "sleep(" in (frame.source or "")


def _loops(frame: Frame) -> list[Block]:
    return [b for b in frame.blocks if b.kind in {"for", "while"}]
