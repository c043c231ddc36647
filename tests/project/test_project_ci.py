"""What CI and newcomers call: ``.ci/run`` and ``make``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]
PASSED = "echo '==== 3 passed in 0.50s ===='"


def run_ci(
    tmp_path: Path, test: str = PASSED, test_long: str = PASSED, nccl: str = PASSED
) -> subprocess.CompletedProcess[str]:
    """Run ``.ci/run`` with a ``make`` that says and returns what a test wants of its three targets."""
    make = tmp_path / "make"
    cases = "".join(f"{name}) {does} ;;\n" for name, does in (("test", test), ("test-long", test_long), ("nccl", nccl)))
    make.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) exit 99 ;;\nesac\n')
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [ROOT / ".ci" / "run"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_ci_ends_with_one_closing_line_of_all_runs(tmp_path: Path) -> None:
    """Whatever is printed after the tests, the last line visible says how many of all targets have passed."""
    checked = "echo '=== 12 passed, 1 xfailed in 3.25s ==='; echo '== 7 passed, 3 deselected, 1 warning in 61.50s (0:01:01) =='"
    done = run_ci(
        tmp_path, f"{checked}; echo goodbye", "echo '== 2 passed, 1 skipped, 8 deselected, 2 warnings in 0.25s =='"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "==== 24 passed, 1 skipped, 1 xfailed, 3 warnings in 65.50s ===="


@pytest.mark.parametrize("failing", ["test", "test_long", "nccl"])
def test_ci_fails_with_any_target(tmp_path: Path, failing: str) -> None:
    """A failure of make is the status of the run, the other targets are run all the same, and all are in the closing line."""
    done = run_ci(tmp_path, **{failing: "echo '= 1 failed, 2 passed, 2 errors in 1.00s ='; exit 2"})
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "==== 1 failed, 8 passed, 2 errors in 2.00s ===="


@pytest.mark.parametrize("target", ["test", "test_long", "nccl"])
@pytest.mark.parametrize(
    "make_script",
    ["true", "echo '==== no tests ran in 0.01s ===='", "echo '==== 3 skipped in 0.01s ===='"],
    ids=["silence", "no tests", "all skipped"],
)
def test_ci_fails_when_no_test_has_passed(tmp_path: Path, make_script: str, target: str) -> None:
    """A run in which nothing was tested is no success."""
    done = run_ci(tmp_path, **{target: make_script})
    assert done.returncode == 1
    assert f"make {target.replace('_', '-')} succeeded, but no test has passed" in done.stderr


def test_ci_tells_the_tests_where_they_are(tmp_path: Path) -> None:
    """``CI`` is set for them: what is missing there is a failure (``tests/tiers.py``)."""
    told = f'[ "$CI" = true ] && {PASSED}'
    done = run_ci(tmp_path, told, told, told)
    assert done.returncode == 0, done.stderr


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call make in the repository."""
    return subprocess.run(["make", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("help",)], ids=["no target", "help"])
def test_make_explains_its_targets(arguments: tuple[str, ...]) -> None:
    """``make`` alone shows what there is to call, and changes nothing."""
    done = make(*arguments)
    assert done.returncode == 0
    assert all(f"make {target}" in done.stdout for target in ("demo", "check", "test", "test-long", "lint", "help"))


@pytest.mark.parametrize(
    ("python", "says"),
    [("no-such-python", "is not there: install Python 3.10 or newer"), ("too-old-python", "3.10 or newer")],
)
def test_make_says_which_python_it_needs(tmp_path: Path, python: str, says: str) -> None:
    """An interpreter that is absent or too old ends set-up in one line, before anything is made."""
    old = tmp_path / "too-old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.0 && exit\nexit 1\n')
    old.chmod(0o755)
    environment = tmp_path / "venv"
    done = make("-B", f"{environment}/.base", f"VENV={environment}", f"PYTHON={tmp_path / python}")
    assert done.returncode != 0
    assert says in done.stderr
    assert not environment.exists()
