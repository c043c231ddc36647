"""What was found, as the incident document has it. Pure."""

from __future__ import annotations

from hangwatch.model.incident import Lateness
from hangwatch.model.text import ranks_do
from hangwatch.slow.arrival import LateRank

#: Below it nothing is said of waits without a culprit: among some ranks, noise of 5 % costs as much.
_WORTH_SAYING = 0.1


def describe(finding: LateRank) -> Lateness:
    """Return a finding with its words."""
    return Lateness(
        rank=finding.rank,
        lost=round(finding.lost, 4),
        late_s=finding.late_ns / 1e9,
        faster=round(finding.faster, 4),
        waiting=finding.waiting,
        steps=finding.steps,
        of_steps=finding.of_steps,
        says=_say(finding),
    )


def _say(finding: LateRank) -> str:
    if finding.rank is None:
        if finding.lost < _WORTH_SAYING:
            return ""
        return (
            f"The ranks waited for each other for {finding.lost:.0%} of the last {finding.of_steps} steps on record; no single "
            "rank was the reason."
        )
    of = f" of the {finding.of_steps}" if finding.steps < finding.of_steps else ""
    late, lost, least = f"{finding.late_ns / 1e6:.3g}", f"{finding.lost:.0%}", ""
    if finding.most_ns > finding.late_ns:
        most = min(finding.lost * finding.most_ns / finding.late_ns, 0.99)
        late, lost, least = f"{late} to {finding.most_ns / 1e6:.3g}", f"{lost} to {most:.0%}", "at least "
    return (
        f"In the last {finding.steps}{of} steps on record, rank {finding.rank} took {late} ms longer for a step than its "
        f"peers, and {ranks_do(finding.waiting, 'waited', 'waited')} for it: {lost} of the time was lost. Without that, the "
        f"job would be {least}{finding.faster:.0%} faster."
    )
