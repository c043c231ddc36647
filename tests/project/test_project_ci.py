"""What CI and newcomers call: ``.ci/run`` and ``make``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]
PASSED = "echo '==== 3 passed in 0.50s ===='"


def run_ci(tmp_path: Path, tests: str = PASSED) -> subprocess.CompletedProcess[str]:
    """Run ``.ci/run`` with a ``make test`` of all tiers that says and returns what a test wants."""
    make = tmp_path / "make"
    make.write_text(f"""#!/bin/sh
[ "$*" = "test TIERS=test long nccl" ] || exit 99
{tests}
""")
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [ROOT / ".ci" / "run"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_ci_ends_with_one_closing_line_of_all_runs(tmp_path: Path) -> None:
    """Whatever is printed after the tests, the last line visible says how many of all runs have passed."""
    checked = "echo '=== 12 passed, 1 xfailed in 3.25s ==='; echo '== 7 passed, 3 deselected, 1 warning in 61.50s (0:01:01) =='"
    jobs = "echo '== 2 passed, 1 skipped, 8 deselected, 2 warnings, 1 rerun in 0.25s =='"
    done = run_ci(tmp_path, f"{checked}; {jobs}; echo goodbye")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "==== 21 passed, 1 skipped, 1 xfailed, 1 rerun, 3 warnings in 65.00s ===="


def test_ci_fails_as_make_does(tmp_path: Path) -> None:
    """A failure of make is the status of the run, and what has failed is in the closing line."""
    done = run_ci(tmp_path, f"echo '= 1 failed, 2 passed, 2 errors in 1.00s ='; {PASSED}; exit 2")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "==== 1 failed, 5 passed, 2 errors in 1.50s ===="


@pytest.mark.parametrize(
    "tests",
    ["true", "echo '==== no tests ran in 0.01s ===='", "echo '==== 3 skipped in 0.01s ===='"],
    ids=["silence", "no tests", "all skipped"],
)
def test_ci_fails_when_no_test_has_passed(tmp_path: Path, tests: str) -> None:
    """A run in which nothing was tested is no success."""
    done = run_ci(tmp_path, tests)
    assert done.returncode == 1
    assert "make test succeeded, but no test has passed" in done.stderr


def test_ci_tells_the_tests_where_they_are(tmp_path: Path) -> None:
    """``CI`` is set for them: what is missing there is a failure (``tests/tiers.py``)."""
    done = run_ci(tmp_path, f'[ "$CI" = true ] && {PASSED}')
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("ci", "runs"), [("true", 2), ("", 1)], ids=["in CI", "elsewhere"])
def test_jobs_are_run_after_pure_tests_have_failed_in_ci_alone(tmp_path: Path, ci: str, runs: int) -> None:
    """Somebody at a keyboard mends those first; CI is to show all that fails."""
    bin_folder = tmp_path / "venv" / "bin"
    bin_folder.mkdir(parents=True)
    (python := bin_folder / "python").write_text("#!/bin/sh\necho called with $*\nexit 1\n")
    python.chmod(0o755)
    for tool in ("ruff", "mypy", "lint-imports"):
        (bin_folder / tool).symlink_to("/bin/true")
    for stamp in ("base", "torch", "demo", "lint", "test"):
        (tmp_path / "venv" / f".{stamp}").touch()
    done = make("test", f"VENV={tmp_path}/venv", CI=ci)
    assert done.returncode != 0
    assert done.stdout.count("called with -m pytest") == runs, done.stdout + done.stderr


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call make in the repository, without what the make that runs these tests was given (``TIERS`` by CI)."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "TIERS"}}
    return subprocess.run(
        ["make", "-C", ROOT, *arguments], env=inherited | environment, capture_output=True, text=True, check=False
    )


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
