"""Runs that several end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from watched_runs import WatchedRuns


@pytest.fixture(scope="session")
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedRuns]:
    """Outcomes of whole runs, each run once; it is known from the tests' parameter ``run`` which will be asked for."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    runs = WatchedRuns(tmp_path_factory.mktemp("watched"), [p["run"] for p in parameters if "run" in p])
    yield runs
    runs.end()
