"""Which pairs of versions are run, and how the results read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from hangwatch.demos import Scenario
from hangwatch.model.incident import Verdict
from hangwatch.model.text import format_ranks

#: Demos that need PyTorch alone: a proven mismatch, a proven cycle through two groups, and a rank stuck in a read.
HANGS = ("rank-conditional", "group-order", "blocked-io")
#: What is written of a hang: all as the demo expects it; a proof was to be had and is missing; no rank and no cause is named.
RIGHT, NOT_PROVEN, NO_CAUSE = "right", "right, not proven", "no culprit, no cause"
#: The first PyTorch that shows what it records of Gloo. Before it nothing can be proven of a job on Gloo.
RECORDS_GLOO = [2, 10]

_START, _END = "<!-- cells -->\n", "<!-- end of the cells -->"


class Cell(msgspec.Struct, frozen=True, order=True):
    """Versions to install: of Python as in ``3.10``, of PyTorch as pip takes them."""

    python: str
    torch: str


#: Each Python and each PyTorch once, the corners, and both sides of ``RECORDS_GLOO``. The first PyTorch for Python 3.13 is 2.5,
#: for 3.14 it is 2.9.
CELLS = tuple(
    Cell(python, torch)
    for python, torch in (
        ("3.10", "2.4.1"),
        ("3.12", "2.4.1"),
        ("3.13", "2.6.0"),
        ("3.12", "2.9.1"),
        ("3.12", "2.10.0"),
        ("3.12", "2.11.0"),
        ("3.11", "2.12.1"),
        ("3.10", "2.13.0"),
        ("3.11", "2.13.0"),
        ("3.13", "2.13.0"),
        ("3.12", "2.14.0"),
        ("3.13", "2.14.1"),
        ("3.14", "2.14.1"),
    )
)


class Result(msgspec.Struct, frozen=True):
    """What a cell came to: the versions that were there, and what was said of each hang.

    ``failed``: why nothing could be run, empty where it was. ``taken``: the day, hangwatch's version and the machine. ``commit``:
    the one that the wheel was built of, with ``+`` where files of the package were changed since; empty where none is known.
    """

    cell: Cell
    python: str = ""
    torch: str = ""
    hangs: dict[str, str] = {}
    failed: str = ""
    taken: str = ""
    commit: str = ""

    @property
    def good(self) -> bool:
        """Whether every hang was found, and said as far as this PyTorch lets anybody see it; nothing wrong in any case."""
        allowed = {RIGHT} if _numbers(self.cell.torch) >= RECORDS_GLOO else {RIGHT, NOT_PROVEN, NO_CAUSE}
        return set(self.hangs) == set(HANGS) and set(self.hangs.values()) <= allowed


class Results(msgspec.Struct, frozen=True):
    """The file. ``how``: the way in which all of it was taken."""

    how: str
    cells: tuple[Result, ...] = ()

    def merged(self, rows: Iterable[Result]) -> Results:
        """With these rows in the place of older ones of the same cells, in order."""
        found = {row.cell: row for row in (*self.cells, *rows)}
        return msgspec.structs.replace(self, cells=tuple(sorted(found.values(), key=_order)))


def parse_cells(names: Sequence[str]) -> tuple[Cell, ...]:
    """``3.10:2.4.1`` and the like; all of ours if none is given. Raises ValueError."""
    found = []
    for name in names:
        match = re.fullmatch(r"(3\.\d+):(\d+(?:\.\d+){1,2}(?:\+\w+)?)", name)
        if match is None:
            raise ValueError(f"{name!r} is no pair of versions: write PYTHON:TORCH, for example 3.10:2.4.1")
        found.append(Cell(match[1], match[2]))
    return tuple(found) or CELLS


def describe(expected: Scenario, verdict: Verdict | None) -> str:
    """What is written of a hang of which this was said (None: nothing)."""
    if verdict is None:
        return "wrong: no incident"
    cause = verdict.cause.id if verdict.cause is not None else None
    if (cause, tuple(verdict.culprit_ranks)) == (expected.cause, expected.culprits):
        if verdict.kind == expected.kind:
            return RIGHT
        if (verdict.kind, expected.kind) == ("stall", "deadlock"):
            return NOT_PROVEN
    if verdict.kind == "stall" and cause in {None, "unknown"} and not verdict.culprit_ranks:
        return NO_CAUSE
    return f"wrong: {verdict.kind}, {cause}, {format_ranks(verdict.culprit_ranks)}"


def render(rows: Iterable[Result]) -> str:
    """The table in Markdown."""
    lines = [
        f"| Python | PyTorch | {' | '.join(f'`{name}`' for name in HANGS)} |",
        "|---|---|" + "---|" * len(HANGS),
    ]
    for row in rows:
        said = [row.hangs.get(name, "not run") for name in HANGS]
        if row.failed:
            said[0] = row.failed
        lines.append(f"| {row.python or row.cell.python} | {row.torch or row.cell.torch} | {' | '.join(said)} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, rows: Iterable[Result]) -> str:
    """The page with this table between its two marks."""
    before, _, rest = page.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}{render(rows)}{_END}{after}"


def _order(row: Result) -> tuple[list[int], list[int]]:
    """By PyTorch, then by Python."""
    return (_numbers(row.cell.torch), _numbers(row.cell.python))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
