"""Whether a rank, or a child of it, lets time pass until a time that it has named: such a wait ends by itself. Pure."""

from __future__ import annotations

from hangwatch.model.capture import RankCapture

#: Two samples of one sleep agree in when it ends, but for the moment between reading the clock and the process.
_SAME_END_NS = 200_000_000


def wakes_in_s(capture: RankCapture, since_ns: int) -> float | None:
    """In how many seconds a sleep ends in which the rank's thread has been since ``since_ns`` at the least, or else one of its
    children; None where there is no such sleep.

    A poll sleeps as well, for less than it waits: its sleeps since then are several.
    """
    ends = [_ends(capture, at) for at in range(len(capture.processes))]
    before = {
        (who, end)
        for sample, found in zip(capture.processes, ends, strict=True)
        if sample.at_ns <= since_ns
        for who, end in found.items()
    }
    last = ends[-1] if ends else {}
    whole = {
        who: end
        for who, end in last.items()
        if any(who == other and abs(end - then) < _SAME_END_NS for other, then in before)
    }
    own = min(whole.items(), key=lambda item: (item[0] != 0, item[1]), default=None)
    return max(0.0, (own[1] - capture.processes[-1].at_ns) / 1e9) if own is not None else None


def _ends(capture: RankCapture, at: int) -> dict[int, int]:
    """When the sleeps end that a sample shows (wall clock, ns), by the child's pid, 0 for the rank's own."""
    sample = capture.processes[at]
    left = {child.pid: child.sleep_left_s for child in sample.children} | {0: sample.sleep_left_s}
    return {who: sample.at_ns + int(s * 1e9) for who, s in left.items() if s is not None}
