"""How sure a cause is, as a rate that was measured: ``calibration.json``, counted over the catalogue by ``make calibrate``.

A key is where a cause stands (first, or an alternative) and what its row says (a level, or ``general``). A first cause of
which the catalogue has no hang was never measured, and is stated at a half.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from hangwatch.causes.signature import Signature


class Rate(msgspec.Struct, frozen=True):
    """Of how many stated causes (``stated``) so many were right (``right``)."""

    right: int
    stated: int

    @property
    def share(self) -> float:
        """The share that was right, by the rule of succession: never 0 or 1, and a half where nothing was counted."""
        return (self.right + 1) / (self.stated + 2)


class Table(msgspec.Struct, frozen=True):
    """Rates by key, the causes that were measured, and how it was made."""

    made: str
    measured: tuple[str, ...]
    rates: Mapping[str, Rate]


def confidence_of(table: Table, cause: str, key: str) -> float:
    """How often a cause that is counted under ``key`` was right, 0..1; a half for a first cause that was never measured."""
    if key.startswith("first/") and cause not in table.measured:
        return Rate(0, 0).share
    return table.rates.get(key, Rate(0, 0)).share


def key_of(row: Signature, *, first: bool) -> str:
    """What a row is counted under: ``first/strong``, ``alternative/possible``, ``first/general``."""
    return f"{'first' if first else 'alternative'}/{'general' if row.general else row.level}"


def confidence(row: Signature, *, first: bool) -> float:
    """How sure a cause is said to be, by the table that came with the package."""
    return confidence_of(read_table(), row.cause, key_of(row, first=first))


@cache
def read_table() -> Table:
    """The table that came with the package."""
    from importlib import resources  # takes longer to import than the table to read

    data = resources.files(__package__).joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(data, type=Table)
