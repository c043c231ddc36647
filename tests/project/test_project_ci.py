"""What CI and newcomers call: ``.ci/run`` and ``make``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]


def run_ci(tmp_path: Path, make_script: str) -> subprocess.CompletedProcess[str]:
    """Run ``.ci/run`` with a ``make`` that says and returns what a test wants."""
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\n[ "$*" = test ] || exit 99\n{make_script}\n')
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CI": "true"}
    return subprocess.run(
        [ROOT / ".ci" / "run"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_ci_ends_with_the_closing_line_of_pytest(tmp_path: Path) -> None:
    """Whatever is printed after the tests, the last line visible says how many have passed."""
    done = run_ci(tmp_path, "echo '==== 12 passed, 1 skipped in 3.21s ===='; echo goodbye")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "==== 12 passed, 1 skipped in 3.21s ===="


def test_ci_fails_with_make(tmp_path: Path) -> None:
    """A failure of make is the status of the run, and the closing line is still the last."""
    done = run_ci(tmp_path, "echo '=== 1 failed, 2 passed in 1.00s (0:00:01) ==='; exit 2")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "=== 1 failed, 2 passed in 1.00s (0:00:01) ==="


@pytest.mark.parametrize(
    "make_script",
    ["true", "echo '==== no tests ran in 0.01s ===='", "echo '==== 3 skipped in 0.01s ===='"],
    ids=["silence", "no tests", "all skipped"],
)
def test_ci_fails_when_no_test_has_passed(tmp_path: Path, make_script: str) -> None:
    """A run in which nothing was tested is no success."""
    done = run_ci(tmp_path, make_script)
    assert done.returncode == 1
    assert "no test has passed" in done.stderr


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call make in the repository."""
    return subprocess.run(["make", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("help",)], ids=["no target", "help"])
def test_make_explains_its_targets(arguments: tuple[str, ...]) -> None:
    """``make`` alone shows what there is to call, and changes nothing."""
    done = make(*arguments)
    assert done.returncode == 0
    assert all(f"make {target}" in done.stdout for target in ("demo", "test", "lint", "help"))


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
