"""When a hang that was reported may be acted on: a pure state machine over the captures since. No I/O.

A report costs a message, an action may cost a night. So the captures after the report have to agree: on what hangs, on who is
to blame, and that none of those concerned has moved. A proof needs one of them. Any other verdict needs all of them for as long
again as the hang had to last to be reported, and for a minute at least; ``--act-after`` sets that time. A capture that
disagrees calls the action off, and the next one that shows a hang starts over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hangwatch.diagnosis.document import rfc3339
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.incident import HANG_KINDS, Kind, SecondLook
from hangwatch.model.text import number_ranks

#: A minute is longer than most of what holds up a job for once: a checkpoint, a retry, a slow disk.
SHORTEST_S = 60.0


@dataclass(frozen=True)
class Look:
    """What one capture shows, as far as it has to stay so.

    ``lasted_s``: how long the hang had to last to be called one. ``concerned``: the culprits and those that wait.
    ``in_flight``: the first operation that each rank has in flight, by its group, kind and number.
    """

    kind: Kind
    proven: bool
    lasted_s: float
    culprits: tuple[int, ...]
    concerned: frozenset[int] = frozenset()
    in_flight: Mapping[int, tuple[str, bool, int]] = field(default_factory=dict)

    def why_not(self, before: Look) -> str:
        """Return why this is not the hang of ``before``, or moves, in words; empty if it agrees."""
        if self.kind not in HANG_KINDS:
            return "the culprit moves, or may move" if self.kind == "straggler" else "the last capture shows no hang"
        if moved := self.moved_since(before):
            return f"{number_ranks(moved)} moved"
        return "" if self.is_like(before) else "the last capture shows another hang"

    def moved_since(self, before: Look) -> list[int]:
        """Return which of the ranks concerned have another operation in flight than before, as far as both looks show one."""
        both = before.concerned & before.in_flight.keys() & self.in_flight.keys()
        return sorted(rank for rank in both if before.in_flight[rank] != self.in_flight[rank])

    def is_like(self, before: Look) -> bool:
        """True if both are called the same, and blame the same ranks."""
        return (self.kind, self.proven, self.culprits) == (before.kind, before.proven, before.culprits)


def look_at(diagnosis: Diagnosis) -> Look:
    """Return what a diagnosis shows. The waits name its culprits: call sites, which may, come with the first report alone."""
    verdict, case = diagnosis.verdict, diagnosis.case
    fronts = {rank: view.frontier for rank, view in case.views.items()}
    return Look(
        verdict.kind,
        verdict.proven,
        diagnosis.lasted_s,
        case.blame.culprits,
        frozenset({*case.blame.culprits, *case.blame.waiting}),
        {rank: (one.group.key, one.p2p, one.seq) for rank, one in fronts.items() if one is not None},
    )


class Stand(NamedTuple):
    """How it stands: act now, or in ``in_s`` seconds at the earliest; where that is None it is called off.

    ``begun``: this is the first of the captures that have to agree. ``why`` it does not agree with those before it, in words.
    """

    act: bool = False
    in_s: float | None = None
    begun: bool = False
    why: str = ""


@dataclass
class SecondLooking:
    """The captures of one hang since it was first seen, as far as they agree. All times are on the caller's clock.

    ``act_after_s``: how long they have to agree where nothing is proven. None: as long as the hang had to last, and a minute at
    least.
    """

    act_after_s: float | None = None
    _first: Look | None = None
    _since_s: float = 0.0

    def forget(self) -> None:
        """Forget the looks so far, because the hang is another one, or another agent looks now."""
        self._first = None

    def take(self, look: Look, now_s: float) -> Stand:
        """Take in one capture, in order of time."""
        first = self._first
        why = look.why_not(first or look)
        if look.kind not in HANG_KINDS:
            self._first = None
            return Stand(why=why)
        if first is None or why:
            self._first, self._since_s = look, now_s
            return Stand(in_s=self._length_s(look), begun=True, why=why)
        left_s = self._since_s + self._length_s(first) - now_s
        return Stand(act=left_s <= 0.0, in_s=max(left_s, 0.0))

    def _length_s(self, first: Look) -> float:
        if first.proven:
            return 0.0
        return max(first.lasted_s, SHORTEST_S) if self.act_after_s is None else self.act_after_s


def describe_stand(stand: Stand, before: SecondLook | None, now_ns: int, look: Look, action: str) -> SecondLook:
    """Return what the document of the incident says of it; ``before``: what that says now, None if it is not reported yet.

    ``action``: what is to be done, in words.
    """
    if before is None or stand.begun:
        unless = (
            "the next capture contradicts the proof" if look.proven else "a rank moves or a capture shows another hang"
        )
        why = stand.why or (before.called_off if before is not None and before.unless else "")
        return SecondLook(rfc3339(now_ns + int((stand.in_s or 0.0) * 1e9)), unless, action, why)
    if stand.in_s is not None:
        return msgspec.structs.replace(before, passed=stand.act)
    return msgspec.structs.replace(before, until="", called_off=stand.why) if before.until else before
