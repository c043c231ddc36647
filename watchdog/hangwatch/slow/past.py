"""Finds that a job takes longer for its steps than it did before. Pure.

Steps are alike if they have the same operations of the same sizes. What is computed in them may still grow by design, such as
with longer sequences. So slower steps are a finding only if it shows what a rank waits for now that it did not wait for before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import quantiles

import msgspec

from hangwatch.model.devices import Gpu
from hangwatch.model.incident import SlowReason
from hangwatch.model.slowness import Profile, SlowJob
from hangwatch.slow.reason import find_reason
from hangwatch.slow.timeline import Call, find_period

#: A step that takes this many times as long is slower; other work on the machine makes it a tenth longer for a while.
_SLOWER = 1.25
#: Steps that take this part of the time before are faster. A job is slow when it starts.
_FASTER = 0.95
#: With fewer steps their quartiles say little.
_LEAST_STEPS = 20
#: Checkpoints, evaluations and other work on the node come and go; what lasts is worth a warning.
_LASTING_NS = 300_000_000_000
#: A job has few kinds of steps; if the sizes of operations vary, each step is of its own kind.
_MOST_KINDS = 8
#: More to compute may be by design.
_BY_DESIGN: frozenset[SlowReason] = frozenset({"compute", "unknown"})


class StepTimes(msgspec.Struct, frozen=True):
    """How long a rank's newest steps take, in ns: half of them less than ``usual_ns``, three quarters more than ``least_ns``.

    ``operations``: the names of those that come in most steps. ``on_device``: see ``Call``.
    """

    operations: frozenset[str]
    least_ns: float
    usual_ns: float
    on_device: bool = False


def find_step_times(calls: Sequence[Call]) -> StepTimes | None:
    """Return how long the steps of a rank take, from its newest calls; None if they are too few."""
    names = tuple([call.name for call in calls])
    steps = [then.at_ns - now.at_ns for now, then in pairwise(calls[:: find_period(names)])] if calls else []
    if len(steps) < _LEAST_STEPS:
        return None
    least_ns, usual_ns, _ = quantiles(steps)
    often = Counter(names)
    operations = frozenset(name for name in often if often[name] >= len(steps) / 2)
    return StepTimes(operations, least_ns, usual_ns, calls[0].on_device)


@dataclass
class Past:
    """The fastest steps of a rank so far, of those with the same operations. ``settled``: no later ones were faster.

    ``profile``: where the rank was then, once that is known; ``gpus``: its GPU then, if any. ``slow_since_ns`` (wall clock): when
    its steps were first seen to take longer; None if they do not.
    """

    times: StepTimes | None = None
    profile: Profile | None = None
    gpus: tuple[Gpu, ...] = ()
    slow_since_ns: int | None = None
    settled: bool = False

    def look(self, now: StepTimes, at_ns: int) -> None:
        """Compare with the newest steps."""
        if self.times is None or now.usual_ns < _FASTER * self.times.usual_ns:
            self._begin(now)
            return
        self.settled = True
        if now.usual_ns < _SLOWER * self.times.usual_ns:
            self.slow_since_ns = None
        elif now.least_ns >= _SLOWER * self.times.usual_ns:
            self.slow_since_ns = self.slow_since_ns or at_ns

    def is_slow_for_long(self, at_ns: int) -> bool:
        """Return whether its steps have taken longer for so long that it is no checkpoint."""
        return self.slow_since_ns is not None and at_ns - self.slow_since_ns >= _LASTING_NS

    def compare(self, now: StepTimes, profile: Profile, gpus: tuple[Gpu, ...]) -> SlowJob | None:
        """Return the finding, with what the rank shows now.

        None if there is nothing to compare yet, or if the new times may be by design: then later ones are compared to them.
        """
        if self.times is not None and self.profile is not None and self.slow_since_ns is not None:
            profiles, both = (profile, self.profile), (*gpus, *self.gpus)
            took_s, before_s = now.usual_ns / 1e9, self.times.usual_ns / 1e9
            found = SlowJob(took_s, before_s, self.slow_since_ns, tuple(now.operations), profiles, both)
            if find_reason(found).kind not in _BY_DESIGN:
                return found
        self._begin(now, profile, gpus)
        return None

    def _begin(self, times: StepTimes, profile: Profile | None = None, gpus: tuple[Gpu, ...] = ()) -> None:
        self.times, self.profile, self.gpus = times, profile, gpus
        self.slow_since_ns, self.settled = None, False


@dataclass
class Pasts:
    """The past of each kind of steps that a rank takes in turn, such as training and evaluation."""

    _of: dict[frozenset[str], Past] = field(default_factory=dict)

    def look(self, now: StepTimes, at_ns: int) -> Past:
        """Compare the newest steps with those that had the same operations, and return the past of these."""
        past = self._of.pop(now.operations, None) or Past()
        self._of[now.operations] = past
        if len(self._of) > _MOST_KINDS:
            self._of.pop(next(iter(self._of))).slow_since_ns = None  # it is followed no longer
        past.look(now, at_ns)
        return past

    def resume(self, found: SlowJob) -> Past:
        """Return the past with which the job was compared when this was found, and go on with it."""
        operations, before_ns = frozenset(found.operations), found.before_s * 1e9
        times = StepTimes(operations, before_ns, before_ns)
        past = Past(times, found.profiles[1], found.gpus[1:], found.onset_ns, settled=True)
        self._of[operations] = past
        return past
