"""One browser for all tests of this folder: its start is the dear part; each test has a tab and cookies of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import start_chromium

from support import JobRunner


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser on a busy machine takes its time."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def chromium(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DevTools address of a running browser."""
    runner = JobRunner(tmp_path_factory.mktemp("chromium"))
    try:
        yield start_chromium(runner, tmp_path_factory.mktemp("profile"))
    finally:
        runner.end_all()
