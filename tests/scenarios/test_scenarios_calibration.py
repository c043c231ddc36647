"""What is stated as a percentage is right that often, in families of programs that had no part in counting it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from hangwatch.causes.calibration import Rate, confidence_of, read_table
from scenarios.calibration import (
    Stated,
    Statement,
    collect_statements,
    count,
    expected_error,
    mean_gap,
    stated_without_own_family,
)
from scenarios.catalogue import load_catalogue
from scenarios.leaving_out import find_all, judge_left_out, shares
from scenarios.recording import kept_hangs

#: The least number of statements from which on a rate can be held against its measure, and how far off it may be.
ENOUGH, TOLERANCE = 20, 0.05
#: What the rows of other families have to reach: the cause first, and among the first three. Less is rows that serve one family.
WITHOUT_OWN_ROWS = (0.92, 0.97)


@pytest.fixture(scope="module")
def statements(long: None) -> list[Statement]:
    """What is stated of every kept capture, whole and in part: six diagnoses of each."""
    return collect_statements(load_catalogue())


def by_key(stated: Sequence[Stated]) -> dict[str, list[Stated]]:
    """The statements by what they are counted under."""
    found: dict[str, list[Stated]] = defaultdict(list)
    for one in stated:
        found[one.statement.key].append(one)
    return found


def test_every_rate_holds_for_families_that_had_no_part_in_it(statements: list[Statement]) -> None:
    """By key, where there are enough of them: the mean of what is stated against the share that is right."""
    gaps = {
        k: round(mean_gap(v), 3) for k, v in by_key(stated_without_own_family(statements)).items() if len(v) >= ENOUGH
    }
    assert gaps
    assert all(abs(gap) <= TOLERANCE for gap in gaps.values()), gaps


def test_the_expected_calibration_error_is_small(statements: list[Statement]) -> None:
    """Over all stated causes, first and alternatives, and over the first alone."""
    stated = stated_without_own_family(statements)
    assert expected_error(stated) <= TOLERANCE
    assert expected_error([s for s in stated if s.statement.key.startswith("first/")]) <= TOLERANCE


def test_the_table_of_the_package_is_the_one_that_is_counted_today(statements: list[Statement]) -> None:
    """Else ``make calibrate`` has to be run."""
    assert count(statements) == read_table()


def test_the_table_of_the_package_is_of_all_kept_hangs() -> None:
    """Else ``make calibrate`` has to be run; whether it has to be after a change of a rule, takes longer to find out."""
    kept = [entry for entry, _ in kept_hangs(load_catalogue())]
    assert f" over {len(kept)} hangs of {len({one.family for one in kept})} families " in read_table().made


def test_what_was_never_measured_is_stated_at_a_half() -> None:
    """A first cause of which the catalogue has no hang, or hardly one, has no rate, whatever its level."""
    hangs = [Statement(name, "b", "known", "first/strong/whole", right=True) for name in "aaabbbccc"]
    table = count([*hangs, Statement("a", "b", "rare", "first/likely/whole", right=True)])
    assert confidence_of(table, "rare", "first/likely/whole") == 0.5
    assert confidence_of(table, "other", "first/strong/whole") == 0.5
    assert confidence_of(table, "known", "first/strong/whole") == Rate(9, 9).share > 0.9


@pytest.mark.usefixtures("long")
def test_families_are_explained_by_the_rows_of_others() -> None:
    """What only one family has shown to be right is left out of its own judgement."""
    left_out = judge_left_out(find_all(load_catalogue()))
    first, in_three = shares(left_out)
    assert first >= WITHOUT_OWN_ROWS[0], [o.name for o in left_out if not o.first]
    assert in_three >= WITHOUT_OWN_ROWS[1], [o.name for o in left_out if not o.in_three]
