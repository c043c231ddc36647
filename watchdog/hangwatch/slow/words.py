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
    least = "at least " if finding.at_least else ""
    of = f" of {finding.of_steps}" if finding.steps < finding.of_steps else ""
    return (
        f"In the last {finding.steps}{of} steps on record, rank {finding.rank} took {least}{finding.late_ns / 1e6:.3g} ms longer "
        f"for a step than its peers, and {ranks_do(finding.waiting, 'waited', 'waited')} for it: {least}{finding.lost:.0%} of "
        f"the time was lost. Without that, the job would be {least}{finding.faster:.0%} faster."
    )
