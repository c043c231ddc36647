"""How sure a cause is, as a rate that was measured: ``calibration.json``, counted over the catalogue by ``make calibrate``.

A key is where a cause stands (first, or an alternative), what its row says (a level, or ``general``), and whether both sides
were seen ``whole``: what is said of ranks whose source, call sites or stacks were not read is right less often. A first
cause of which the catalogue has hardly a hang was not measured, and is stated at a half.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import is_program
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.signature import Signature


class Rate(msgspec.Struct, frozen=True):
    """Of how many stated causes (``stated``) so many were right (``right``)."""

    right: int
    stated: int

    @property
    def share(self) -> float:
        """The share that was right, half a case more on either side: never 0 or 1, a half where nothing was counted."""
        return (self.right + 0.5) / (self.stated + 1)


class Table(msgspec.Struct, frozen=True):
    """Rates by key, the causes that were measured, and how it was made."""

    made: str
    measured: tuple[str, ...]
    rates: Mapping[str, Rate]


def confidence_of(table: Table, cause: str, key: str) -> float:
    """How often a cause that is counted under ``key`` was right, 0..1; a half for a first cause that was not measured."""
    if key.startswith("first/") and cause not in table.measured:
        return Rate(0, 0).share
    return table.rates.get(key, Rate(0, 0)).share


def key_of(row: Signature, *, first: bool, whole: bool) -> str:
    """What a row is counted under: ``first/strong/whole``, ``alternative/possible/part``, ``first/general/whole``."""
    level = "general" if row.general else row.level
    return f"{'first' if first else 'alternative'}/{level}/{'whole' if whole else 'part'}"


def is_whole(case: Case) -> bool:
    """Whether of both sides the stack, the source of its lines and the call sites of recorded operations were read."""
    ranks = case.representatives if case.blame.culprits else case.blame.waiting
    shown = [case.views[r] for r in ranks if r is not None and r in case.views]
    return all(view.gone or _is_read(view) for view in shown)


def _is_read(view: RankView) -> bool:
    flight = view.capture.flight
    call_sites = flight is not None and any(o.frames for o in flight.operations)
    return call_sites and any(frame.source for frame in view.frames if is_program(frame))


def confidence(row: Signature, *, first: bool, whole: bool) -> float:
    """How sure a cause is, by the table that came with the package."""
    return confidence_of(read_table(), row.cause, key_of(row, first=first, whole=whole))


def is_measured(cause: str) -> bool:
    """Whether the catalogue has hangs enough of this cause for its rates to speak of it."""
    return cause in read_table().measured


@cache
def read_table() -> Table:
    """The table that came with the package."""
    from importlib import resources  # takes longer to import than the table to read

    data = resources.files(__package__).joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(data, type=Table)
