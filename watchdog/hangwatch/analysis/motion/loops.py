"""What the loops around a stack say of motion: it is at another item or iteration than before, or will be by itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, pairwise, takewhile

from msgspec.structs import replace

from hangwatch.analysis.places import find_event_loop, is_interpreter, package_of
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Block, Frame, Position, StackSample, ThreadStack, once_a_stack
from hangwatch.program.lines import header_of

#: A loop by its thread, the depth and place of its frame, its line and the variable that holds its items.
_Loop = tuple[int, int, str, str, int, str]
#: Files in which a main thread waits for another thread of its process.
_HANDOVERS = ("/threading.py", "/queue.py", "/concurrent/futures/")
#: A loop for as long as a file is there, and nothing else.
_IS_THERE = re.compile(r"(?!.*\bnot\b)[^=<>]*\b(?:exists|lexists|is_file|isfile)\([^()]*\)")
#: Two samples of one sleep put its end no further apart than this.
_OTHER_SLEEP_S = 0.05
#: How deep ``SocketIO.readinto`` is at most: below it is ssl's ``recv_into`` and ``read``.
BELOW_A_SOCKET = 3
#: An event loop that gets on wakes at least so often: it may wake once for a signal, and every 20 s for a heartbeat.
_WAKES = 2
_WAKES_PER_S = 0.4
#: A loop that reads what is sent to its end, and compares it with nothing.
_TAKES = re.compile(r"while \(?\w+ := [\w.]+\.(?:read|recv)\w*\([^()]*\)\)?:$")


def main_place(sample: StackSample) -> tuple[tuple[str, str, int], ...]:
    """Return the calls of the main thread as file, function and line; empty if it was not seen.

    A signal handler that is stuck is called within itself again and again: that is one place. A function that calls
    itself from another line is at a new place.
    """
    return _calls(sample.main_frames)


@once_a_stack
def _calls(frames: Sequence[Frame]) -> tuple[tuple[str, str, int], ...]:
    places = list(map(_place, frames))
    again = sum(1 for _ in takewhile(lambda place: place == places[0], places[1:]))
    return tuple(places[again:])


def _place(frame: Frame) -> tuple[str, str, int]:
    return frame.file, frame.function, frame.line


def polls_throughout(stacks: Sequence[StackSample]) -> bool:
    """True if every sample has the main thread in the same ``while`` with a sleep, at any line: it asks the same again.

    A call that the loop makes into the program or a library may be work: then it is False.
    """
    paths = [s.main_frames[::-1] for s in stacks]
    found = next(((p, i) for p in paths for i, f in enumerate(p) if _polls(f)), None)
    if found is None:
        return False
    known, depth = found
    loop = known[depth].loops[-1]

    def is_there(path: Sequence[Frame]) -> bool:
        if len(path) <= depth or list(map(_place, path[:depth])) != list(map(_place, known[:depth])):
            return False
        here = path[depth]
        same = (here.file, here.function) == (known[depth].file, known[depth].function)
        lines = {here.line, *(b.line for b in here.blocks if b.kind == loop.kind)}
        return same and loop.line in lines and all(map(is_interpreter, path[depth + 1 :]))

    return all(map(is_there, paths))


def _polls(frame: Frame) -> bool:
    return _sleeps(frame) and bool(frame.loops) and _may_go_round(frame.loops[-1])


def counts_on(stacks: Sequence[StackSample]) -> bool:
    """True if the main thread is in a later iteration than before of a loop that ends by the number of iterations alone.

    Between its iterations it may sleep, as an upload at a server's pace does. A loop that polls counts its attempts
    too, but something else ends it: its count says nothing.
    """
    numbers = [_iteration_numbers(s.main_frames) for s in stacks]
    return any(
        after[loop] > number for before, after in pairwise(numbers) for loop, number in before.items() if loop in after
    )


@once_a_stack
def _iteration_numbers(frames: Sequence[Frame]) -> Mapping[tuple[int, str, str, int], int]:
    """Return the iteration of each counted loop around the main thread, by depth, file, function and line of the loop."""
    return {
        (depth, frame.file, frame.function, block.line): int(described.removeprefix("int="))
        for depth, frame in enumerate(reversed(frames))
        for block in frame.blocks
        if block.iterations is not None
        and block.iterations.bounded
        and (described := (frame.locals or {}).get(block.iterations.counter, "")).startswith("int=")
    }


def goes_through_data(stacks: Sequence[StackSample]) -> bool:
    """True if a loop over data is at another item than in a sample before.

    Items that come again say nothing in a ``while`` that may go on for ever: so does a poll of several things, one
    after another. If the main thread waits for another thread of its process, all threads count, else only the main
    one.
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
    """Return ``sample`` with the items marked that an earlier sample has shown, so that the earlier ones can be dropped."""
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
    """Yield each loop that a process is in, its position, and whether any new item in it is progress."""
    threads = [t for t in sample.threads if any(frame.positions for frame in t.frames)]
    if not threads:
        return
    # A ``while`` may give a pool the same call again and again.
    hands_on = any(map(_is_in_while, sample.main_frames))
    own = [thread for thread in threads if thread.is_main]
    for thread in threads if hands_over(sample) else own:
        polls = False
        for depth, frame in enumerate(reversed(thread.frames), 1):
            whole = {b.line for b in takewhile(lambda b: not _may_go_round(b), frame.blocks) if b.exhausts}
            for one in frame.positions:
                if one.loop or not hands_on:
                    yield _key(thread, depth, frame, one), one, not polls and one.loop in whole
            polls |= _is_in_while(frame)


def hands_over(sample: StackSample) -> bool:
    """True if the main thread waits for another thread of its process, or for the answer of a server that runs in one."""
    frames = sample.main_frames
    if not frames:
        return False
    reads = any(f.file.endswith("/socket.py") for f in frames[:BELOW_A_SOCKET])
    return any(part in frames[0].file for part in _HANDOVERS) or (reads and any(map(_answers, sample.threads)))


def _answers(thread: ThreadStack) -> bool:
    """True if a thread handles a request (``BaseServer.finish_request``, CPython 3.10 to 3.14)."""
    return any(f.file.endswith("/socketserver.py") and f.function.endswith("finish_request") for f in thread.frames)


def children_go_on(samples: Sequence[ProcessSample]) -> bool:
    """True if a child's loop over data is at a new item, or the child has slept between two items and woken."""
    seen: dict[tuple[int, int, str], set[str]] = {}
    wakes_s: dict[int, float] = {}
    # If time is too short to read both at once, a child's stack may be read after the sleep that the kernel showed.
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
    """True if the main thread's event loop wakes for tasks that all end with their data: there are only so many answers.

    Tasks are on no stack while they wait, and a loop in which no task can go on does not wake: measured in 32 hangs.
    """
    if not all(_is_for_tasks_that_end(s.main_frames) for s in stacks):
        return False
    woken = [(s.at_ns, s.switches) for s in samples if s.switches is not None]
    if not woken:
        return False
    (began_ns, first), (ended_ns, last) = woken[0], woken[-1]
    return last - first >= max(_WAKES, _WAKES_PER_S * (ended_ns - began_ns) / 1e9)


def _is_for_tasks_that_end(frames: Sequence[Frame]) -> bool:
    own = next((f for f in frames if f.blocks or f.facts), None)
    return find_event_loop(frames[:2]) is not None and own is not None and any(one.kind == "ends" for one in own.facts)


def ends_by_clock(frames: Sequence[Frame]) -> bool:
    """True if the deepest frame sleeps in a loop that ends at a time of its own, whatever it waits for."""
    blocks = frames[0].blocks if frames and _sleeps(frames[0]) else ()
    inside = dropwhile(lambda block: block.kind not in {"for", "while"}, blocks)
    return any(b.kind in {"while", "guard"} and header_of(b).by_clock for b in inside)


def retries(frames: Sequence[Frame]) -> bool:
    """True if the deepest frame sleeps in a loop where it has caught an exception: it will try again what has failed."""
    if not frames or not _sleeps(frames[0]) or sleeps_for_file(frames[0]):
        return False  # it waits for a file that somebody else has to remove
    kinds = [b.kind for b in frames[0].blocks]
    return "except" in kinds and not {"for", "while"}.isdisjoint(kinds[: kinds.index("except")])


def is_between_items(frames: Sequence[Frame]) -> bool:
    """True if these frames sleep right before the next item of a loop that ends with its data.

    The sleep must be in no other loop, and no ``while`` may be around that loop.
    """
    if not frames or not _sleeps(frames[0]) or package_of(frames[0]) == "torch":
        return False  # the blocks of torch's own code are not read: it may sleep in a loop
    inner = list(takewhile(lambda f: f.source is not None and not _around(f) and not _is_condition(f), frames))
    rest = frames[len(inner) :]
    if not rest or not _around(rest[0]):
        return False
    return _around(rest[0])[-1].exhausts and not any(map(_is_in_while, rest))


def sleeps_for_file(frame: Frame) -> bool:
    """True if a line sleeps in a loop until another process removes a file, as with a lock file."""
    kinds, loops = [b.kind for b in frame.blocks], frame.loops
    caught = "except" in kinds and "FileExistsError" in header_of(frame.blocks[kinds.index("except")]).names
    asks = bool(loops) and loops[-1].kind == "while" and _IS_THERE.fullmatch(header_of(loops[-1]).said) is not None
    return _sleeps(frame) and bool(loops) and (caught or asks)


def asks_again(frames: Sequence[Frame]) -> bool:
    """True if the innermost loop around these frames is a ``while``: it may go on until the answer is another."""
    looping = next((frame for frame in frames if frame.loops or _is_condition(frame)), None)
    return looping is not None and (_is_condition(looping) or _may_go_round(looping.loops[-1]))


def _is_in_while(frame: Frame) -> bool:
    return _is_condition(frame) or any(map(_may_go_round, _around(frame)))


def _around(frame: Frame) -> list[Block]:
    """Return the loops around a line, without the innermost if it ends at a time: behind it comes what is around it."""
    found = frame.loops
    return found[:-1] if frame.ends_in_s is not None and found and found[-1].kind == "while" else found


def _may_go_round(block: Block) -> bool:
    """True if the block is a loop that may go on for ever."""
    return block.kind == "while" and not block.exhausts


def _is_condition(frame: Frame) -> bool:
    """True if a frame is in the condition of a ``while``, a line that is in no block of that loop.

    A loop that reads until there is no more (``while piece := response.read(4096):``) is over data and does not count.
    """
    source = frame.source or ""
    return source.startswith("while ") and not _TAKES.match(source)


def _sleeps(frame: Frame) -> bool:
    return "sleep(" in (frame.source or "")
