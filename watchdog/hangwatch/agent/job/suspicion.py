"""When to capture a job: a pure state machine over what the beats say, driven by the tick's clock. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hangwatch.analysis.patience import SUSPECT_FLOOR_S, Cadence
from hangwatch.model.progress import RankProgress

#: Captures of one suspicion come at 1, 2, 4 .. times this, up to the longest: each costs the node some milliseconds.
FIRST_SPACING_S = 1.0
LONGEST_SPACING_S = 30.0
SHORTEST_LIMIT_S = 2.0
#: Captures to spare for waits that are ordinary in this job (most hangs come in a job that had none for long), and how
#: soon one is earned again: it bounds what capturing the ordinary costs a node.
SPARE_CAPTURES = 10.0
SPARE_CAPTURE_S = 20.0
#: A job in which nothing is in flight and nothing moves may be in a wait that no recorder shows.
QUIET_S = 1.0

_IN_FLIGHT = "an operation is in flight and makes no progress"


@dataclass
class Hold:
    """Keeps a resumed incident open: an agent that has just begun has not yet seen anything hang.

    It lasts until ``until_s`` of the tick's clock, or until a rank has moved.
    """

    until_s: float
    _counters: dict[int, tuple[tuple[str, int, int], ...]] = field(default_factory=dict)

    def lasts(self, ranks: Iterable[RankProgress], now_s: float) -> bool:
        """Return whether the incident is to stay open although nothing was seen to hang yet."""
        moved = any(self._counters.setdefault(one.rank, one.counters) != one.counters for one in ranks)
        return not moved and now_s < self.until_s


@dataclass
class Suspicion:
    """One episode in which the job may hang, and its latest reason in words.

    ``since_s``, ``next_capture_s``, ``captured_s`` (None: not yet) and ``act_at_s`` are on the tick's (monotonic) clock.
    ``act_at_s``: when a hang may be acted on, for a capture at that moment; None where none is.
    """

    since_s: float
    next_capture_s: float
    spacing_s: float = FIRST_SPACING_S
    reason: str = ""
    captured_s: float | None = None
    act_at_s: float | None = None

    def change(self, reason: str, now_s: float) -> None:
        """Take in why it is suspected now: for another reason it is captured soon, however long the last one has been known."""
        if reason != self.reason:
            self.reason, self.spacing_s = reason, FIRST_SPACING_S
            soonest_s = now_s if self.captured_s is None else max(now_s, self.captured_s + FIRST_SPACING_S)
            self.next_capture_s = min(self.next_capture_s, soonest_s)

    def captured(self, now_s: float, patience_s: float) -> None:
        """Plan the next capture: further apart each time, but one at the moment the patience ends, or a hang may be acted on."""
        self.captured_s = now_s
        wait_s = self.spacing_s
        left_s = self.since_s + patience_s - now_s
        if 0.0 < left_s < 1.5 * wait_s:
            wait_s = left_s + 0.1
        if self.act_at_s is not None:
            wait_s = min(wait_s, max(self.act_at_s - now_s, FIRST_SPACING_S))
            self.act_at_s = None
        self.next_capture_s = now_s + wait_s
        limit_s = min(max(patience_s / 4, SHORTEST_LIMIT_S), LONGEST_SPACING_S)
        self.spacing_s = min(self.spacing_s * 2, limit_s)


@dataclass
class Suspector:
    """Turns the ranks' progress into suspicions, and learns the job's cadence from waits that end by themselves.

    ``skew_s``: the progress of one update may be of moments so far apart.
    """

    cadence: Cadence = field(default_factory=Cadence)
    quiet: Cadence = field(default_factory=Cadence)
    current: Suspicion | None = None
    skew_s: float = 0.0
    _last: dict[int, RankProgress] = field(default_factory=dict)
    _quiet_s: float = 0.0
    _limit_s: float | None = None
    _spare: float = SPARE_CAPTURES
    _spare_at_s: float | None = None
    _marks: dict[int, tuple[tuple[tuple[str, int, int], ...], float]] = field(default_factory=dict)

    def update(
        self,
        ranks: Iterable[RankProgress],
        *,
        unprobed: bool,
        lost: bool,
        now_s: float,
        limit_s: float | None = None,
        starved_s: float | None = None,
    ) -> Suspicion | None:
        """Take in one tick's progress. ``unprobed``: some rank has no beat. ``lost``: some rank's process is gone.

        ``limit_s``: a wait this long is suspicious, however ordinary such waits are in this job.
        ``starved_s``: for how long those who wait for a serving engine of the job have got nothing, None where that is not
        suspicious.
        """
        ranks = list(ranks)
        self._limit_s = limit_s
        self._earn(now_s)
        for one in ranks:
            self._learn(one)
        quiet_s = self._unmoved_s(ranks, now_s)
        if quiet_s < self._quiet_s:
            self.quiet.learn(self._quiet_s)
        self._quiet_s = quiet_s
        self._last = {p.rank: p for p in ranks}
        reason, still_s = self._reason(ranks, unprobed, lost, starved_s)
        if not reason:
            self.current = None
        elif self.current is None:
            since_s = now_s - still_s
            self.current = Suspicion(since_s, now_s, reason=reason)
        else:
            self.current.change(reason, now_s)
        return self.current

    def captured(self, now_s: float, patience_s: float) -> None:
        """Note that a capture was taken, and plan the next one of this suspicion."""
        self._spare = max(self._spare - 1.0, -SPARE_CAPTURES)
        if self.current is not None:
            self.current.captured(now_s, patience_s)

    def _earn(self, now_s: float) -> None:
        if self._spare_at_s is not None:
            self._spare = min(self._spare + (now_s - self._spare_at_s) / SPARE_CAPTURE_S, SPARE_CAPTURES)
        self._spare_at_s = now_s

    def _unmoved_s(self, ranks: list[RankProgress], now_s: float) -> float:
        """Return for how many seconds no rank has moved in any group, as far as this agent has watched."""
        for one in ranks:
            if one.rank not in self._marks or self._marks[one.rank][0] != one.counters:
                self._marks[one.rank] = (one.counters, now_s)
        return min((now_s - self._marks[p.rank][1] for p in ranks), default=0.0)

    def _learn(self, one: RankProgress) -> None:
        before = self._last.get(one.rank)
        if before is None:
            return
        for key, (seq, unmoved_s) in before.in_flight.items():
            now = one.in_flight.get(key)
            if now is None or now[0] != seq or now[1] < unmoved_s:
                self.cadence.learn(unmoved_s)

    def _reason(
        self, ranks: list[RankProgress], unprobed: bool, lost: bool, starved_s: float | None
    ) -> tuple[str, float]:
        if lost:
            return "a rank's process is gone", 0.0
        if starved_s is not None:
            return "requests wait and the engine produces no output", starved_s
        waits = [unmoved_s for p in ranks for _, unmoved_s in p.in_flight.values()]
        longest = max(waits, default=0.0)
        threshold_s = self._threshold_s()
        if ranks and all(p.in_flight for p in ranks):
            # All in flight and unmoved: if they are not in the same place, it is a deadlock whatever the cadence.
            places = {tuple(sorted((k, v[0]) for k, v in p.in_flight.items())) for p in ranks}
            if len(places) > 1 and min(max(s for _, s in p.in_flight.values()) for p in ranks) >= self.skew_s:
                threshold_s = SUSPECT_FLOOR_S
        if longest >= threshold_s:
            return _IN_FLIGHT, longest
        if ranks and not waits and self._quiet_s >= max(QUIET_S, self.quiet.suspicion_s()):
            return "no operation is in flight and nothing moves", self._quiet_s
        if unprobed:
            return "ranks without the probe are watched through their stacks", 0.0
        return "", 0.0

    @property
    def sees_wait(self) -> bool:
        """True if an operation in flight, which the beats of the last tick show, is what is suspected."""
        return self.current is not None and self.current.reason == _IN_FLIGHT

    def soonest_s(self) -> float | None:
        """Return in how many seconds an operation now in flight becomes suspicious; None if there is none.

        The next tick must come no later.
        """
        waits = [unmoved_s for p in self._last.values() for _, unmoved_s in p.in_flight.values() if unmoved_s >= 0.25]
        if not waits or self.current is not None:
            return None
        return max(0.1, self._threshold_s() - max(waits))

    def _threshold_s(self) -> float:
        """Return after how many seconds a wait is suspicious. What is suspected stays so until it moves."""
        spare = self.current is not None or self._spare >= 1.0
        threshold_s = SUSPECT_FLOOR_S if spare else self.cadence.suspicion_s()
        return threshold_s if self._limit_s is None else min(threshold_s, self._limit_s)
