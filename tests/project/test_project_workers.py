"""Which tests share a worker, and which begin first (``tests/workers.py``): shown on small suites of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

_SHARING = """
import os, pytest

@pytest.fixture(scope="module", params=["one", "two"])
def server(request, tmp_path_factory):
    (tmp_path_factory.getbasetemp().parent / f"{request.param}.{os.getpid()}").touch()
    return request.param

@pytest.mark.parametrize("number", range(8))
def test_shared(server, number): pass

@pytest.mark.parametrize("number", range(8))
def test_alone(number): pass
"""


def test_what_shares_a_fixture_shares_a_worker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server of a module is set up once for each of its parameters, however many workers there are."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    pytester.makepyfile(_SHARING)
    options = ("-p", "workers", "-n", "2", "--dist", "loadgroup", f"--basetemp={tmp_path / 'base'}")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=24)
    made = [path.stem for path in (tmp_path / "base").glob("*.*")]
    assert sorted(made) == ["one", "two"]


_WAITING = """
import pathlib, pytest

def begins(name):
    with pathlib.Path("order").open("a") as file:
        file.write(name + "\\n")

@pytest.mark.parametrize("number", range(8))
def test_other(number): begins("other")

@pytest.mark.waits
def test_that_waits(): begins("waits")
"""


def test_what_waits_begins_first(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is collected last, and alone."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    pytester.makepyfile(_WAITING)
    pytester.runpytest_subprocess("-p", "workers", "-n", "1", "--dist", "loadgroup").assert_outcomes(passed=9)
    assert (pytester.path / "order").read_text().split() == ["waits"] + ["other"] * 8
