"""What is stated as a percentage is right that often, in families of programs that had no part in counting it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import pytest

from corpus.catalogue import load_catalogue
from hangwatch.causes.calibration import Rate, Table, confidence_of, read_table
from scenarios.calibration import (
    TABLE_OF_SAMPLE,
    Stated,
    Statement,
    collect_statements,
    count,
    expected_error,
    mean_gap,
    sampled,
    stated_without_own_family,
)
from scenarios.recording import kept_hangs

#: The least number of statements from which on a rate can be held against its measure, and how far off it may be.
ENOUGH, TOLERANCE = 20, 0.05


@pytest.fixture(scope="module")
def statements() -> list[Statement]:
    """What is stated of every kept capture, whole and in part: six diagnoses of each."""
    return collect_statements(load_catalogue())


def by_key(stated: Sequence[Stated]) -> dict[str, list[Stated]]:
    """The statements by what they are counted under."""
    found: dict[str, list[Stated]] = defaultdict(list)
    for one in stated:
        found[one.statement.key].append(one)
    return found


@pytest.mark.soak
def test_every_rate_holds_for_families_that_had_no_part_in_it(statements: list[Statement]) -> None:
    """By key, where there are enough of them: the mean of what is stated against the share that is right."""
    gaps = {
        k: round(mean_gap(v), 3) for k, v in by_key(stated_without_own_family(statements)).items() if len(v) >= ENOUGH
    }
    assert gaps
    assert all(abs(gap) <= TOLERANCE for gap in gaps.values()), gaps


@pytest.mark.soak
def test_the_expected_calibration_error_is_small(statements: list[Statement]) -> None:
    """Over all stated causes, first and alternatives, and over the first alone."""
    stated = stated_without_own_family(statements)
    assert expected_error(stated) <= TOLERANCE
    assert expected_error([s for s in stated if s.statement.key.startswith("first/")]) <= TOLERANCE


@pytest.mark.soak
def test_the_table_of_the_package_is_the_one_that_is_counted_today(statements: list[Statement]) -> None:
    """Else ``make calibrate`` has to be run."""
    assert count(statements) == read_table()


@pytest.mark.usefixtures("long")
def test_the_table_of_the_sample_is_the_one_that_is_counted_today() -> None:
    """Else ``make calibrate`` has to be run: it writes both tables."""
    kept = msgspec.json.decode(TABLE_OF_SAMPLE.read_bytes(), type=Table)
    assert count(collect_statements(sampled(load_catalogue()))) == kept


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
