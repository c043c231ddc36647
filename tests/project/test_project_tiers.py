"""No test belies its tier (``tests/tiers.py``): shown on small suites of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

_SUITE = """
import contextlib, multiprocessing, os, socket, subprocess, pytest

def start(): subprocess.run(["true"], check=True)

def fork():
    if os.fork() == 0: os._exit(0)
    os.wait()

def spawn(): multiprocessing.get_context("spawn").Process(target=print).start()

def serve():
    with socket.create_server(("127.0.0.1", 0)): pass

def connect():
    with contextlib.suppress(OSError): socket.create_connection(("127.0.0.1", 1))

def swallow():
    with contextlib.suppress(BaseException): start()

@pytest.fixture
def job(real): start()

def test_pure(tmp_path): (tmp_path / "file").touch()
def test_real(job): start()
@pytest.mark.usefixtures("long")
def test_long(job): start()
@pytest.mark.usefixtures("long")
def test_long_and_pure(): pass
@pytest.mark.soak
def test_again(job): start()
@pytest.mark.parametrize("value", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_values(value): pass
@pytest.mark.parametrize("act", [start, fork, spawn, serve, connect, swallow])
def test_belies(act): act()
"""
_SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="redis-server is not installed")
def test_server(): pass
def test_gpu(): pytest.skip("this machine has a GPU")
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


def run(pytester: pytest.Pytester, suite: str, *options: str) -> dict[str, int]:
    """How the tests of a suite end that has our tiers."""
    pytester.makepyfile(suite)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading them takes longer than these suites
        counts = pytester.runpytest_subprocess("-p", "tiers", "-p", "no:cacheprovider", *options).parseoutcomes()
    counts.pop("deselected", None)
    return counts


@pytest.mark.parametrize(
    ("tiers", "passed", "failed"),
    [(("check",), 2, 6), (("test",), 1, 0), (("long",), 2, 0), (("soak",), 2, 0), (("test", "long"), 3, 0)],
)
def test_each_test_has_the_tier_of_its_fixtures(
    pytester: pytest.Pytester, tiers: Sequence[str], passed: int, failed: int
) -> None:
    """Also of those used through others; and whatever starts a process or touches a socket without them fails."""
    counts = run(pytester, _SUITE, *(f"--tier={tier}" for tier in tiers))
    assert counts == {name: n for name, n in {"passed": passed, "failed": failed}.items() if n}


def test_without_a_tier_all_are_run(pytester: pytest.Pytester) -> None:
    """Nothing is left out, and the guard is there as well."""
    assert run(pytester, _SUITE) == {"passed": 7, "failed": 6}


@pytest.mark.parametrize(
    ("ci", "expected"),
    [("", {"skipped": 2, "xfailed": 1}), ("true", {"errors": 1, "skipped": 1, "xfailed": 1})],
    ids=["elsewhere", "in CI"],
)
def test_what_is_missing_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, expected: dict[str, int]
) -> None:
    """A server that is not installed is a skip to people and a failure in CI; a fact of the machine is a skip to both."""
    monkeypatch.setenv("CI", ci)
    assert run(pytester, _SKIPS) == expected
