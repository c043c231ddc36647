"""How often a stated cause is right: counted over the kept captures, and written to the package by ``make calibrate``.

Every capture counts as it is, and with parts of it unread (``UNREAD``): of a job there may be no more to be read than that.
For the judgement of the rates themselves every family of programs is stated with the table of all others
(``stated_without_own_family``): no program has a part in the rate that it is held against.

To count them all takes minutes. What is counted of a sample alone is kept beside it: CI counts that again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from corpus.catalogue import load_capture, load_catalogue
from corpus.entries import Entry
from hangwatch.causes.calibration import Rate, Table, confidence_of, is_whole, key_of
from hangwatch.diagnosis.causes import shown
from hangwatch.diagnosis.registry import explain, failed
from recorded import without
from scenarios.launching import HERE
from scenarios.recording import case_of, kept_hangs, sample

TABLE = HERE.parent.parent / "watchdog" / "hangwatch" / "causes" / "calibration.json"
#: The same of one hang in so many.
TABLE_OF_SAMPLE, ONE_IN = HERE / "calibration_of_sample.json", 20

#: Of a cause with fewer hangs than these the rates say nothing.
_FEW = 3
#: What is left unread of every rank: nothing; the files, the call sites, both; the recorder; all but the recorder.
UNREAD = (
    frozenset[str](),
    frozenset({"sources"}),
    frozenset({"sites"}),
    frozenset({"sources", "sites"}),
    frozenset({"flight", "progress"}),
    frozenset({"stacks"}),
)


class Statement(msgspec.Struct, frozen=True):
    """One cause that was stated of one capture: what it is counted under, and whether it is the truth."""

    scenario: str
    family: str
    cause: str
    key: str
    right: bool


class Stated(msgspec.Struct, frozen=True):
    """A statement, and how sure it was said to be."""

    statement: Statement
    confidence: float


def collect_statements(entries: Iterable[Entry]) -> list[Statement]:
    """Every cause, first or alternative, that is stated of the kept captures of these hangs."""
    found = []
    failed_before = failed.total()
    for entry, truth in kept_hangs(entries):
        capture = load_capture(entry)
        for unread in UNREAD:
            case = case_of(without(capture, {rank.rank: unread for rank in capture.ranks}))
            if case is None:
                continue
            whole = is_whole(case)
            for place, match in enumerate(shown(explain(case))):
                cause, key = match.cause, key_of(match, first=place == 0, whole=whole)
                found.append(Statement(entry.scenario.name, entry.family, cause, key, cause == truth.cause))
    assert failed.total() == failed_before, f"rules failed: {failed}"
    return found


def count(statements: Sequence[Statement]) -> Table:
    """The rates over these statements. A cause is measured once it was right in a few hangs."""
    right: dict[str, int] = defaultdict(int)
    stated: dict[str, int] = defaultdict(int)
    for statement in statements:
        stated[statement.key] += 1
        right[statement.key] += statement.right
    right_in: dict[str, set[str]] = defaultdict(set)
    for statement in statements:
        if statement.right:
            right_in[statement.cause].add(statement.scenario)
    captures = len({statement.scenario for statement in statements})
    families = len({statement.family for statement in statements})
    return Table(
        made=f"by `make calibrate`, over {captures} hangs of {families} families of the corpus",
        measured=tuple(sorted(cause for cause, hangs in right_in.items() if len(hangs) >= _FEW)),
        rates={key: Rate(right[key], stated[key]) for key in sorted(stated)},
    )


def stated_without_own_family(statements: Sequence[Statement]) -> list[Stated]:
    """Every statement with the confidence that the table of all other families gives it."""
    found = []
    for family in sorted({statement.family for statement in statements}):
        table = count([statement for statement in statements if statement.family != family])
        own = (statement for statement in statements if statement.family == family)
        found += [Stated(s, confidence_of(table, s.cause, s.key)) for s in own]
    return found


def mean_gap(stated: Sequence[Stated]) -> float:
    """By how much the mean of what was stated is off from the share that was right."""
    return sum(s.confidence - s.statement.right for s in stated) / len(stated)


def expected_error(stated: Sequence[Stated]) -> float:
    """The expected calibration error over ten-percent buckets: the mean gap of each, weighted by its size."""
    buckets: dict[int, list[Stated]] = defaultdict(list)
    for one in stated:
        buckets[min(int(one.confidence * 10), 9)].append(one)
    return sum(abs(mean_gap(bucket)) * len(bucket) for bucket in buckets.values()) / len(stated)


def sampled(entries: Iterable[Entry]) -> list[Entry]:
    """The hangs of which the table is counted again in CI."""
    names = sample(entries := list(entries), ONE_IN)
    return [entry for entry in entries if entry.scenario.name in names]


def main() -> None:
    """Write the tables, and print how well the rates hold for families that had no part in them."""
    catalogue = load_catalogue()
    statements = collect_statements(catalogue)
    table = count(statements)
    names = {entry.scenario.name for entry in sampled(catalogue)}
    of_sample = count([statement for statement in statements if statement.scenario in names])
    for path, counted in ((TABLE, table), (TABLE_OF_SAMPLE, of_sample)):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(counted), indent=1) + b"\n")
    stated = stated_without_own_family(statements)
    for key, rate in table.rates.items():
        held = [s for s in stated if s.statement.key == key]
        print(f"{key:28} right {rate.right:4} of {rate.stated:4}, stated {rate.share:.2f}, gap {mean_gap(held):+.3f}")
    print(f"expected calibration error, each family stated by the others: {expected_error(stated):.3f}")


if __name__ == "__main__":
    main()
