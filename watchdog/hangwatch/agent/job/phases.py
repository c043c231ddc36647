"""How long the phases of a job last: waits that ended by themselves, by where in the program the ranks were meanwhile. Pure.

An evaluation, a checkpoint or the preparation of data has no name that could be seen. But as long as one lasts, the ranks that
wait stand at one place, and the one that they wait for stays inside the call that is the phase: its stacks have all the frames
above that in common. That is what is known again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hangwatch.analysis.case import Case
from hangwatch.analysis.patience import STALL_FACTOR, STALL_FLOOR_S
from hangwatch.model.stacks import Frame

#: Phases that are kept, the last ones: a program has few that are long.
_KEPT = 64
#: A wait that is shorter changes no patience.
_SHORTEST_S = STALL_FLOOR_S / STALL_FACTOR

_Path = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Phase:
    """The place of a wait: the stacks of one waiting rank and of the culprit, outermost frame first."""

    waiting: _Path
    culprit: _Path

    def holds(self, other: Phase) -> bool:
        """True if ``other`` is this phase, further inside or not."""
        return self.waiting == other.waiting and self.culprit == other.culprit[: len(self.culprit)]

    def common(self, other: Phase) -> Phase:
        """Return the smallest phase that holds both. The ranks wait at the same place in both."""
        pairs = zip(self.culprit, other.culprit, strict=False)
        same = next((i for i, (one, two) in enumerate(pairs) if one != two), min(len(self.culprit), len(other.culprit)))
        return Phase(self.waiting, self.culprit[:same])


def read_phase(case: Case) -> Phase | None:
    """Return where the ranks of a case are; None if one of the two sides was not seen."""
    culprit, other = case.representatives
    if culprit is None or other is None:
        return None
    paths = [_path(case.views[rank].frames) if rank in case.views else () for rank in (other, culprit)]
    return Phase(*paths) if all(paths) else None


def _path(frames: Sequence[Frame]) -> _Path:
    return tuple((frame.file, frame.function, frame.line) for frame in reversed(frames))


@dataclass
class Phases:
    """What the waits of one job have taught, by phase; bounded. ``_now``: the wait that goes on, and for how long it has."""

    _known: dict[Phase, float] = field(default_factory=dict)
    _now: tuple[Phase, float] | None = None

    def see(self, case: Case, waited_s: float | None) -> float:
        """Take in a capture; return how long the longest wait in its phase was, in seconds, 0 if none is known.

        ``waited_s``: for how long the wait in it has lasted, None if that is not known. If that is shorter than before, it is
        another wait, and the last one has ended by itself.
        """
        if self._now is not None and waited_s is not None and waited_s < self._now[1]:
            self.end()
        if waited_s is None or waited_s < _SHORTEST_S or case.blame.proof is not None:
            return 0.0
        phase = read_phase(case)
        if phase is None:
            return 0.0
        known_s = max((s for known, s in self._known.items() if known.holds(phase)), default=0.0)
        if self._now is not None and self._now[0].waiting == phase.waiting:
            phase = self._now[0].common(phase)
        self._now = (phase, waited_s)
        return known_s

    def end(self) -> None:
        """Learn from the wait that went on: it has ended by itself."""
        if self._now is not None:
            phase, lasted_s = self._now
            self._known[phase] = max(lasted_s, self._known.pop(phase, 0.0))
            for oldest in list(self._known)[:-_KEPT]:
                del self._known[oldest]
        self._now = None

    def drop(self) -> None:
        """Learn nothing from the wait that goes on: whoever acts on it may end it."""
        self._now = None
