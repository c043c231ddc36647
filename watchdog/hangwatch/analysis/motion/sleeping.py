"""When a rank moves next by itself, if it or whom it waits for in its own process has named a time. Pure.

Such a wait ends by itself. A poll sleeps as well, for less than it waits, and by the end of a sleep nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangwatch.analysis.motion.loops import hands_over, is_between_items, retries
from hangwatch.model.capture import RankCapture
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import StackSample

#: How far apart two samples of one sleep may put its end: clock and process are read one after the other.
_SAME_END_NS = 200_000_000
#: The rank's own thread, among those that sleep.
_OWN = 0
#: What stays for as long as a thread is in one call: its context switches, and the call, or for a child, how much is known.
_Call = tuple[int | None, str | bool | None]


def wakes_in_s(capture: RankCapture, since_ns: int) -> float | None:
    """Return in how many seconds the rank's sleep ends; None if it is in none, or in one that may lead to the next.

    If its main thread waits for another one of its process, or does not sleep, the sleep of that thread or of a child
    counts. It must be the same sleep since ``since_ns`` at least, or one between the items of a loop over data.
    """
    if not capture.processes:
        return None
    sampled = list(_ends(capture.processes))
    last = dict(sampled[-1])
    before = [
        found
        for sample, ends in zip(capture.processes, sampled, strict=True)
        if sample.at_ns <= since_ns
        for found in ends
    ]
    before += [(_OWN, end[0]) for s in capture.stacks if s.at_ns <= since_ns and (end := _loop_end(s)) is not None]
    looping = _loop_end(capture.stacks[-1]) if capture.stacks else None
    same_ns = _SAME_END_NS
    if looping is not None:
        last[_OWN], early_ns = looping
        same_ns += early_ns
    paced = _between_items(capture)
    ends = [
        last[who]
        for who in ((_OWN,) if _OWN in last else last)
        if who in paced or any(who == other and abs(last[who] - then) < same_ns for other, then in before)
    ]
    return max(0.0, (min(ends) - capture.processes[-1].at_ns) / 1e9) if ends else None


def _ends(samples: Sequence[ProcessSample]) -> Iterator[list[tuple[int, int]]]:
    """Yield when the sleeps and waits of each sample end (wall clock, ns), with the number of the child or other thread.

    Some tell only their full length. They began no later than the first sample that shows them: the thread has not run
    since.
    """
    known: dict[int, tuple[_Call, int]] = {}
    for sample in samples:
        shown: list[tuple[int, float | None, _Call]]
        shown = [(c.pid, c.sleep_left_s, (c.switches, bool(c.stack))) for c in sample.children]
        shown += [(t.os_thread_id, t.sleep_left_s, (t.switches, t.syscall)) for t in sample.threads]
        shown.append((_OWN, sample.sleep_left_s, (sample.switches, sample.syscall)))
        before, known = known, {}
        for who, left_s, call in shown:
            if left_s is not None:
                same = call[0] is not None and who in before and before[who][0] == call
                known[who] = before[who] if same else (call, sample.at_ns + int(left_s * 1e9))
        yield [(who, end) for who, (_, end) in known.items()]


def _loop_end(stack: StackSample) -> tuple[int, int] | None:
    """Return when the first of the main thread's loops ends that run until a time, and how much earlier it may; in ns."""
    left = [(frame.ends_in_s, frame.early_s) for frame in stack.main_frames if frame.ends_in_s is not None]
    return (stack.at_ns + int(min(left)[0] * 1e9), int(min(left)[1] * 1e9)) if left else None


def _between_items(capture: RankCapture) -> set[int]:
    """Return the threads that sleep between two items of their data, or two attempts.

    Only the main thread is looked at, or if that waits for another one, all others.
    """
    stack = capture.stacks[-1] if capture.stacks else None
    if stack is None or stack.main is None:
        return set()
    threads = (t for t in stack.threads if t.is_main is not hands_over(stack))
    between = (t for t in threads if is_between_items(t.frames) or retries(t.frames))
    return {_OWN if t.is_main else t.os_thread_id for t in between}
