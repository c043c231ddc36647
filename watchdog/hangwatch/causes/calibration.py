"""How sure a cause is, as a rate that was measured: ``calibration.json``, counted over the catalogue by ``make calibrate``.

A key is where a cause stands (first, or an alternative), how much its match says (a level), and whether both sides
were seen ``whole``: what is said of ranks whose source, call sites or stacks were not read is right less often. A first
cause of which the catalogue has hardly a hang was not measured, and is stated at a half.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import is_program
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.match import Match


class Rate(msgspec.Struct, frozen=True):
    """How many of the ``stated`` causes were ``right``."""

    right: int
    stated: int

    @property
    def share(self) -> float:
        """The share that was right, with half a case added on either side: never 0 or 1, and 0.5 if nothing was counted."""
        return (self.right + 0.5) / (self.stated + 1)


class Table(msgspec.Struct, frozen=True):
    """Rates by key, the causes that were measured, and how it was made."""

    made: str
    measured: tuple[str, ...]
    rates: Mapping[str, Rate]


def confidence_of(table: Table, cause: str, key: str) -> float:
    """Return how often a cause counted under ``key`` was right, 0..1; a half for a first cause that was not measured."""
    if key.startswith("first/") and cause not in table.measured:
        return Rate(0, 0).share
    return table.rates.get(key, Rate(0, 0)).share


def key_of(match: Match, *, first: bool, whole: bool) -> str:
    """Return what a match is counted under: ``first/strong/whole``, ``alternative/possible/part``, ``first/seen/whole``."""
    return f"{'first' if first else 'alternative'}/{match.level}/{'whole' if whole else 'part'}"


def is_whole(case: Case) -> bool:
    """True if stack, source lines and call sites of recorded operations were read on both sides."""
    ranks = case.representatives if case.blame.culprits else case.blame.waiting
    shown = [case.views[r] for r in ranks if r is not None and r in case.views]
    return all(view.gone or _is_read(view) for view in shown)


def _is_read(view: RankView) -> bool:
    flight = view.capture.flight
    call_sites = flight is not None and any(o.frames for o in flight.operations)
    return call_sites and any(frame.source for frame in view.frames if is_program(frame))


def confidence(match: Match, *, first: bool, whole: bool) -> float:
    """Return how sure a cause is, by the table that came with the package."""
    return confidence_of(read_table(), match.cause, key_of(match, first=first, whole=whole))


def is_measured(cause: str) -> bool:
    """True if the catalogue has enough hangs of this cause for its rates to count."""
    return cause in read_table().measured


@cache
def read_table() -> Table:
    """Return the table that came with the package."""
    from importlib import resources  # slower to import than to read the table

    data = resources.files(__package__).joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(data, type=Table)
