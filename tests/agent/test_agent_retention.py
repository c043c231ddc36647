"""The state directory stays within its bounds, and what is open stays in it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from bundles_on_disk import make_bundle
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.incidents.retention import StoredBundle, choose_expired, sweep
from hangwatch.config.settings import Retention
from hangwatch.outputs.archive import Archive

_DAY_S = 86400.0
BUNDLES = st.lists(
    st.builds(
        StoredBundle,
        name=st.uuids().map(str),
        changed_s=st.floats(0, 200 * _DAY_S),
        size_bytes=st.integers(0, 10**9),
        open=st.booleans(),
    ),
    max_size=20,
    unique_by=lambda one: one.name,
)
LIMITS = st.builds(
    Retention,
    max_count=st.integers(1, 20),
    max_size_gb=st.floats(0.001, 10),
    max_age_days=st.floats(0.01, 200),
)


@given(BUNDLES, LIMITS)
def test_what_is_left_is_within_the_limits_or_open(bundles: list[StoredBundle], limits: Retention) -> None:
    """Open ones are kept; of the others as many as fit are, and none that stays is older than one that goes without need."""
    now_s = 200 * _DAY_S
    gone = set(choose_expired(bundles, limits, now_s))
    kept = [one for one in bundles if one.name not in gone]
    closed = [one for one in kept if not one.open]
    assert not any(one.open for one in bundles if one.name in gone)
    assert all(now_s - one.changed_s <= limits.max_age_days * _DAY_S for one in closed)
    fits = len(kept) <= limits.max_count and sum(one.size_bytes for one in kept) <= limits.max_size_gb * 1e9
    assert fits or not closed
    for one in bundles:
        old = now_s - one.changed_s > limits.max_age_days * _DAY_S
        if one.name in gone and not old:
            assert all(other.changed_s >= one.changed_s for other in closed)


@given(BUNDLES)
def test_nothing_goes_where_everything_fits(bundles: list[StoredBundle]) -> None:
    """Within all limits no bundle is touched."""
    assert choose_expired(bundles, Retention(max_count=20, max_size_gb=20.0, max_age_days=201.0), 200 * _DAY_S) == ()


def _names(state: Path) -> set[str]:
    return {path.name for path in (state / "incidents").iterdir()}


def test_a_sweep_removes_whole_bundles_and_nothing_else(tmp_path: Path) -> None:
    """The oldest ended ones go; open ones, strangers' folders, links and files stay; an interrupted sweep is completed."""
    for number in range(5):
        make_bundle(tmp_path, f"ended-{number}", ended=True, changed_s=1000.0 + number)
    make_bundle(tmp_path, "open", ended=False, changed_s=1.0)
    make_bundle(tmp_path, "moment-dump", ended=False, changed_s=2.0)
    folder = tmp_path / "incidents"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "incident.json").write_text((folder / "ended-0" / "incident.json").read_text())
    (folder / "link").symlink_to(elsewhere)
    (folder / "notes").mkdir()
    (folder / "file").write_text("mine")
    (folder / ".removed-old").mkdir()
    half = folder / "half-written"
    half.mkdir()
    (half / "capture.json").write_text("{}")
    os.utime(half / "capture.json", (3.0, 3.0))
    removed = sweep(tmp_path, Retention(max_count=3, max_age_days=1e6))
    assert removed == ("moment-dump", "half-written", "ended-0", "ended-1", "ended-2")
    assert _names(tmp_path) == {"ended-3", "ended-4", "open", "link", "notes", "file"}
    assert (elsewhere / "incident.json").exists()
    assert {one.id for one in Archive(tmp_path).list() if one.open} == {"open"}


def test_size_and_age_bound_as_well(tmp_path: Path) -> None:
    """A bundle that is too much for the size, or too old, goes."""
    make_bundle(tmp_path, "old", ended=True, changed_s=1000.0)
    make_bundle(tmp_path, "new", ended=True)
    assert sweep(tmp_path, Retention(max_age_days=30.0)) == ("old",)
    assert sweep(tmp_path, Retention(max_size_gb=1e-6)) == ("new",)
    assert sweep(tmp_path / "missing", Retention()) == ()


@pytest.mark.parametrize("limit", ["max_count", "max_size_gb", "max_age_days"])
def test_a_limit_that_keeps_nothing_is_refused(limit: str) -> None:
    """Zero of anything would remove the bundle that somebody was just notified of."""
    with pytest.raises(msgspec.ValidationError, match=limit):
        msgspec.convert({limit: 0}, Retention)
