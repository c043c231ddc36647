"""How long to wait before calling a wait suspicious, or a stall. It adapts to what the job has shown. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: A hang that cannot be proven is not called a stall sooner, unless the user says so.
STALL_FLOOR_S = 30.0
STALL_CEILING_S = 1800.0
#: Without a job's history, what is younger than this may be part of an ordinary step, which may take two seconds.
STEP_S = 2.5
#: How many times the longest ordinary wait a stall has to last.
STALL_FACTOR = 4.0
#: A capture costs a few milliseconds of each node and pauses no rank, so it may come soon.
SUSPECT_FLOOR_S = 0.75
#: Over how many seconds, at least, a culprit must not have moved to be called stuck.
MOTION_WINDOW_FLOOR_S = 2.0
#: A culprit that still moves gets this many times the patience before it is called stuck.
BUSY_FACTOR = 10.0
BUSY_FLOOR_S = 300.0
#: If all ranks are blocked by files and none waits for another, the patience is so many times as long, unless the user set it.
HELD_FACTOR = 4.0
HELD_CEILING_S = 600.0
#: A process that is not seen is called stuck after this long at the earliest: an engine may load, or answer, for long.
OUTSIDE_FLOOR_S = 1800.0


@dataclass(frozen=True)
class Patience:
    """Seconds to wait: ``stall_s`` for a culprit that does not move, ``busy_s`` for one that does.

    ``blocked_s``: where all ranks are blocked by files and none waits for another. Storage may be slow for all, and
    another job may rightly hold a lock. ``why``: why ``stall_s`` is that long, in words.
    """

    stall_s: float
    busy_s: float
    blocked_s: float
    why: str = ""

    @property
    def outside_s(self) -> float:
        """Seconds to wait for a process that is not a rank of the job and cannot be seen."""
        return max(self.busy_s, OUTSIDE_FLOOR_S)

    @property
    def motion_window_s(self) -> float:
        """Seconds for which a culprit must not have moved to be called stuck: the second half of the patience."""
        return max(self.stall_s / 2, MOTION_WINDOW_FLOOR_S)


def fixed_patience(stall_after_s: float) -> Patience:
    """Return the patience that the user asked for, in seconds."""
    return Patience(stall_after_s, max(BUSY_FACTOR * stall_after_s, BUSY_FLOOR_S), stall_after_s, "as you set it")


@dataclass
class Cadence:
    """The ordinary waits of one job, learned from those that ended. Bounded: only the last ones count."""

    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=512))

    def learn(self, wait_s: float) -> None:
        """Learn a wait that ended by itself after ``wait_s`` seconds."""
        self.waits_s.append(wait_s)

    @property
    def longest_s(self) -> float:
        """The longest ordinary wait seen, in seconds; 0 if none was seen."""
        return max(self.waits_s, default=0.0)

    def patience(self, phase_s: float = 0.0) -> Patience:
        """Return the patience for what cannot be proven: a multiple of the longest ordinary wait, between floor and ceiling.

        ``phase_s``: the longest wait in the phase that the job is in, however long ago, in seconds; 0 if none is known.
        """
        lately_s, here_s = _stall_s(self.longest_s), _stall_s(phase_s)
        stall_s = max(lately_s, here_s)
        if stall_s in {STALL_FLOOR_S, STALL_CEILING_S}:
            why = "the minimum" if stall_s == STALL_FLOOR_S else "the maximum"
        elif here_s > lately_s:
            why = f"four times the {phase_s:.0f} s that this wait has taken before"
        else:
            why = f"four times the longest of its last waits, {self.longest_s:.0f} s"
        return Patience(
            stall_s,
            max(BUSY_FACTOR * lately_s, BUSY_FLOOR_S, stall_s),
            min(HELD_FACTOR * lately_s, max(lately_s, HELD_CEILING_S)),
            why,
        )

    def suspicion_s(self) -> float:
        """Return after how many seconds a wait is worth a capture: beyond nine in ten of the ordinary ones."""
        ordered = sorted(self.waits_s)
        usual = ordered[int(len(ordered) * 0.9)] if ordered else 0.0
        return max(SUSPECT_FLOOR_S, 1.5 * usual)


def _stall_s(longest_s: float) -> float:
    return min(max(STALL_FLOOR_S, STALL_FACTOR * longest_s), STALL_CEILING_S)
