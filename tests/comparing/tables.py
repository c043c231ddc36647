"""The figures of a comparison, and the table that is written into its page."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from comparing.judging import Judged, Named

_HASH = re.compile(r"\b[0-9a-f]{32,}\b")
_START = "<!-- written by `make compare` -->\n"
_END = "<!-- end -->\n"


class Row(msgspec.Struct, frozen=True):
    """One hang: the truth, how many ranks wrote a dump, whether torch had to be asked for it, and what each tool said."""

    name: str
    culprits: tuple[int | str, ...]
    cause: str
    ranks: int
    dumps: int
    asked: bool
    tools: tuple[Judged, ...]


def render(rows: Sequence[Row]) -> str:
    """Both tables: figures a tool, and each hang."""
    written = [row for row in rows if row.dumps]
    names = [judged.tool for judged in written[0].tools]
    by_tool = [[row.tools[place] for row in written] for place in range(len(names))]
    both = sum(judged.lines is not None for judged in by_tool[0])
    figures: list[tuple[str, list[str]]] = [
        ("a culprit is named: exactly those of the truth", [_count(tool, "exact") for tool in by_tool]),
        ("... one of them, or others too", [_count(tool, "among") for tool in by_tool]),
        ("only other ranks are named", [_count(tool, "wrong") for tool in by_tool]),
        ("nobody is named", [_count(tool, "nobody") for tool in by_tool]),
        ("the tool failed and named nobody", [_count(tool, "failed") for tool in by_tool]),
        ("the cause is named", [str(sum(judged.cause for judged in tool)) for tool in by_tool]),
        (
            f"the line is shown on both sides (of {both} whose dumps hold both)",
            [str(sum(judged.lines is True for judged in tool)) for tool in by_tool],
        ),
        ("exit status", [_statuses(tool) for tool in by_tool]),
        ("seconds, median", [f"{statistics.median(judged.seconds for judged in tool):.2f}" for tool in by_tool]),
    ]
    asked = sum(row.asked for row in written)
    lines = [
        f"{len(rows)} hangs were run. {len(written)} left dumps: {len(written) - asked} when the time limit was reached, "
        f"{asked} when asked. The other {len(rows) - len(written)} left none, and are not counted below.",
        "",
    ]
    lines += [f"| {len(written)} hangs | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {what} | " + " | ".join(values) + " |" for what, values in figures]
    lines += ["", *_failures(written), ""]
    lines += ["| hang | culprits, cause | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    lines += [_hang(row) for row in rows]
    return "\n".join(lines) + "\n"


def with_tables(page: str, rows: Sequence[Row]) -> str:
    """The page with these tables between its two marks."""
    before, _, rest = page.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}{render(rows)}{_END}{after}"


def _count(tool: Iterable[Judged], named: Named) -> str:
    return str(sum(judged.named == named for judged in tool))


def _statuses(tool: Iterable[Judged]) -> str:
    counts = Counter(judged.status for judged in tool)
    return ", ".join(f"{status}: {count}" for status, count in sorted(counts.items(), key=lambda one: -one[1]))


def _failures(rows: Iterable[Row]) -> list[str]:
    """Each error once, with how often it came; what differs from hang to hang is a group's hash."""
    errors = Counter(
        (judged.tool, _HASH.sub("<hash>", judged.error))
        for row in rows
        for judged in row.tools
        if judged.error is not None
    )
    return [f"- {tool}: `{error}` ({count})" for (tool, error), count in errors.most_common()]


def _hang(row: Row) -> str:
    truth = f"{', '.join(map(str, row.culprits))}: {row.cause}"
    if not row.dumps:
        return f"| `{row.name}` | {truth} | " + " | ".join(["no dump"] * 3) + " |"
    return f"| `{row.name}` | {truth} | " + " | ".join(_cell(judged) for judged in row.tools) + " |"


def _cell(judged: Judged) -> str:
    ranks = ", ".join(map(str, judged.culprits)) or "-"
    more = [word for word, there in (("cause", judged.cause), ("lines", judged.lines)) if there]
    return f"{judged.named} {ranks}" + "".join(f", {word}" for word in more)
