"""What a rule says of a case: which cause fits, how much that says, why, and what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.case import Case
from hangwatch.model.incident import Evidence, How

#: How much a match says, the surest first. ``certain``: the structure leaves no doubt. ``strong``: it speaks for this cause, and
#: others leave the same picture rarely. ``likely``: others may leave it too. ``possible``: it fits, and nothing speaks for it.
#: ``seen``: it says what was seen and not why, and goes after whatever says why.
Level = Literal["certain", "strong", "likely", "possible", "seen"]
LEVELS: tuple[Level, ...] = ("certain", "strong", "likely", "possible", "seen")


@dataclass(frozen=True)
class Match:
    """A cause that fits a case.

    ``cause``: the id of its page. ``says``: why it fits, in sentences. ``evidence``: what was seen on which rank.
    ``side``: a rank that did what the cause says (took the branch, left the loop, saved, failed), if that can be told
    without knowing who waits; None if either side may have. It names the culprits among ranks that wait for each other.
    ``how``: what parted ranks that took different ways.
    """

    cause: str
    level: Level
    says: str
    evidence: tuple[Evidence, ...]
    side: int | None = None
    how: How | None = None


Rule = Callable[[Case], Match | None]
