"""Holds what hangwatch said of a scenario against its truth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from corpus.entries import Entry, Truth
from corpus.judging import answer_of, culprits_of, in_order, mark, processes
from hangwatch.model.incident import HANG_KINDS, Divergence, Incident, Verdict


class Run(msgspec.Struct, frozen=True):
    """What a run left: exit status of ``hangwatch run`` (None: it had to be ended), how long it took, its incidents."""

    status: int | None
    took_s: float
    incidents: tuple[Incident, ...]
    output: str


class Judgement(msgspec.Struct, frozen=True):
    """A scenario's row in the table. ``wrong`` says in words everything that is not as the truth has it.

    ``culprits_right``, ``cause_first`` and ``cause_in_three`` are None for controls. ``confirmed_s``: from onset to
    confirmation, None without an incident. ``false_alarm``: a hang was reported of a control. ``wrong_proof``: a proof
    that names a wrong culprit, or of a hang that can resolve.
    """

    name: str
    family: str
    expected: str
    said: str
    kind: str
    proven: bool
    culprits_right: bool | None
    cause_first: bool | None
    cause_in_three: bool | None
    lines_right: bool | None
    false_alarm: bool
    wrong_proof: bool
    confirmed_s: float | None
    wrong: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether everything that the bar asks for holds; a detail (a line, an operation's name) may still be off."""
        if self.culprits_right is None:
            return not self.false_alarm and not self.wrong
        return bool(self.culprits_right and self.cause_first) and not self.wrong_proof


def judge(entry: Entry, run: Run) -> Judgement:
    """The row of one run."""
    truth = entry.scenario.truth
    if truth is None:
        return _judge_control(entry, run)
    reported = find_hang(run.incidents, truth)
    if reported is None:
        return _row(entry, truth.cause, None, None, [f"no incident (exit status {run.status}, {run.took_s:.0f} s)"])
    return judge_verdict(entry, truth, reported.verdict, _confirmed_s(reported))


def judge_verdict(entry: Entry, truth: Truth, verdict: Verdict, confirmed_s: float | None = None) -> Judgement:
    """The row of a hang of which this was said."""
    row = _row(entry, truth.cause, verdict, confirmed_s, _differences(entry, truth, verdict))
    found = mark(entry, answer_of(verdict))
    return msgspec.structs.replace(
        row,
        culprits_right=found.culprits,
        cause_first=found.first,
        cause_in_three=found.three,
        lines_right=_lines_right(entry, truth, verdict.divergence),
        wrong_proof=found.wrong_proof,
    )


def find_hang(incidents: Sequence[Incident], truth: Truth) -> Incident | None:
    """The incident that speaks of the hang: the first of a kind that ends jobs, or a warning where that is the truth."""
    wanted = HANG_KINDS | set(truth.kinds)
    return next((i for i in incidents if i.verdict.kind in wanted), None)


def _judge_control(entry: Entry, run: Run) -> Judgement:
    control = entry.scenario.control
    assert control is not None
    # Whether a rank is slow is no part of a control's truth.
    allowed = {"healthy", "slow", "straggler"} if control.warning else {"healthy", "slow"}
    reported = next((i for i in run.incidents if i.verdict.kind not in allowed), None)
    wrong = []
    if reported is not None:
        wrong.append(f"reported: {reported.verdict.summary}")
    elif run.status not in control.status:
        wrong.append(f"exit status {run.status} and not {control.status} after {run.took_s:.0f} s")
    verdict = reported.verdict if reported is not None else None
    row = _row(entry, "control", verdict, _confirmed_s(reported) if reported is not None else None, wrong)
    alarm = reported is not None and reported.verdict.kind in HANG_KINDS
    return msgspec.structs.replace(row, false_alarm=alarm, wrong_proof=alarm and row.proven)


def _row(
    entry: Entry, expected: str, verdict: Verdict | None, confirmed_s: float | None, wrong: list[str]
) -> Judgement:
    hang = entry.scenario.truth is not None
    return Judgement(
        name=entry.scenario.name,
        family=entry.family,
        expected=expected,
        said=verdict.cause.id if verdict is not None and verdict.cause is not None else "nothing",
        kind=verdict.kind if verdict is not None else "nothing",
        proven=verdict.proven if verdict is not None else False,
        culprits_right=False if hang else None,
        cause_first=False if hang else None,
        cause_in_three=False if hang else None,
        lines_right=None,
        false_alarm=False,
        wrong_proof=False,
        confirmed_s=confirmed_s,
        wrong=tuple(wrong),
    )


def _confirmed_s(incident: Incident) -> float | None:
    if incident.confirmed_at is None:
        return None
    return round((_at(incident.confirmed_at) - _at(incident.onset_at)).total_seconds(), 2)


def _at(moment: str) -> datetime:
    return datetime.fromisoformat(moment.replace("Z", "+00:00"))


def _differences(entry: Entry, truth: Truth, verdict: Verdict) -> list[str]:
    found = []
    said = verdict.cause.id if verdict.cause is not None else None
    named = culprits_of(truth, verdict.culprits_from == "cause")
    pairs: list[tuple[str, object, object]] = [
        ("culprits", processes(verdict, verdict.culprit_ranks), in_order(named)),
        ("cause", said, truth.cause),
        ("proven", verdict.proven, truth.proven),
    ]
    if truth.waiting is not None:
        others = [rank for rank in truth.culprits if rank not in named]
        pairs.append(("waiting", processes(verdict, verdict.waiting_ranks), in_order([*truth.waiting, *others])))
    pending = verdict.collective
    if truth.group is not None:
        pairs.append(("group", sorted(pending.group_ranks) if pending else None, sorted(truth.group)))
    if truth.sequence is not None:
        pairs.append(("first difference", verdict.divergence.seq if verdict.divergence else None, truth.sequence))
    found += [f"{what} {said} and not {true}" for what, said, true in pairs if said != true]
    if verdict.kind not in truth.kinds:
        found.append(f"kind {verdict.kind} and not {' or '.join(truth.kinds)}")
    if truth.operation and (pending is None or pending.op not in truth.operation):
        found.append(f"operation {pending.op if pending else None} and not {' or '.join(truth.operation)}")
    if _lines_right(entry, truth, verdict.divergence) is False:
        found.append(f"lines {_lines(verdict.divergence)} and not {truth.culprit_line!r}, {truth.others_line!r}")
    return found


def _lines(divergence: Divergence | None) -> tuple[str, ...]:
    sides = (divergence.culprit, divergence.others) if divergence is not None else ()
    return tuple(f"{side.file.rpartition('/')[2]}:{side.line}" if side is not None else "none" for side in sides)


def _lines_right(entry: Entry, truth: Truth, divergence: Divergence | None) -> bool | None:
    """Whether both sides' lines are the program's; None where the truth names none."""
    wanted = (truth.culprit_line, truth.others_line)
    if wanted == (None, None):
        return None
    if divergence is None:
        return False
    for text, side in zip(wanted, (divergence.culprit, divergence.others), strict=True):
        if text is None:
            continue
        if side is None or side.line != entry.line_of(text) or not side.file.endswith(entry.program):
            return False
    return True
