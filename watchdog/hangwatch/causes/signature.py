"""One row: one way in which a cause shows itself, and how much that says. Rules return a ``Match`` that names its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.case import Case
from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.knowledge import Knowledge, known
from hangwatch.model.incident import Evidence

#: How much a row says. ``certain``: the structure leaves no doubt. ``strong``: it speaks for this cause, and others leave the
#: same picture rarely. ``likely``: others may leave it too. ``possible``: it fits, and nothing speaks for it.
Level = Literal["certain", "strong", "likely", "possible"]
LEVELS: tuple[Level, ...] = ("certain", "strong", "likely", "possible")


@dataclass(frozen=True)
class Signature:
    """One way in which a cause shows itself.

    ``cause``: the id of its page. ``name``: short, unique in the cause. ``beats``: what it goes before at the same level,
    causes or rows (``CAUSE/NAME``). ``decides``: nothing else leaves this picture, so no alternatives stand beside it.
    ``general``: it says what was seen and not why, and goes after whatever says why.
    """

    cause: str
    name: str
    level: Level
    beats: tuple[str, ...] = ()
    decides: bool = False
    general: bool = False

    @property
    def id(self) -> str:
        """``CAUSE/NAME``."""
        return f"{self.cause}/{self.name}"

    @property
    def weight(self) -> int:
        """Its place among the levels, 0 for the surest; the general ones come after all."""
        return len(LEVELS) if self.general else LEVELS.index(self.level)

    @property
    def knowledge(self) -> Knowledge:
        """What the cause's page says."""
        return known(self.cause)


@dataclass(frozen=True)
class Match:
    """A row that fits a case: the sentence that says so, and what was seen on which rank."""

    signature: Signature
    says: str
    evidence: tuple[Evidence, ...]


Rule = Callable[[Case], Match | None]
TrainingRule = Callable[[TrainingCase], Match | None]
