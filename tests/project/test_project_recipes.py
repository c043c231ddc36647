"""The recipes of CONTRIBUTING.md (``recipes``): followed in a copy of the tree, each comes to the end of ``make check``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "tests" / "project" / "recipes"
#: By recipe: the pure tests that judge what it changes, beside its own.
JUDGED_BY: Mapping[str, Sequence[str]] = {
    "cause": tuple(
        f"tests/causes/test_causes_{what}.py" for what in ("pages", "recorded", "precedence", "alternatives")
    ),
    "source": ("tests/hardware/test_hardware_fabric_ports.py", "tests/agent/test_agent_hardware.py"),
    "receiver": tuple(f"tests/{what}.py" for what in ("outputs/test_notifications", "cli/test_cli_settings")),
}
#: Those that judge every change.
RULES = tuple(f"tests/project/test_project_{what}.py" for what in ("docs", "fields", "names", "imports"))
#: What ``make lint`` runs.
LINTERS = {
    "ruff": ("ruff", "check", "--no-cache", "."),
    "format": ("ruff", "format", "--check", "."),
    "mypy": ("mypy",),
    "imports": ("lint-imports", "--no-cache"),
}
CHANGES = "changes.toml"
#: So much of the end of what a command has printed.
_SAID_CHARS = 6000
_BLOCK = re.compile(r"```\w+\n(?:#|<!--) (\S+?)(?: -->)?\n(.*?)```", re.DOTALL)


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines that go into a file that exists, below the first line that begins with a text."""

    file: str
    below: str
    lines: str

    def apply(self, tree: Path) -> None:
        """Add them."""
        path = tree / self.file
        text = path.read_text().splitlines(keepends=True)
        places = [number for number, line in enumerate(text, 1) if line.startswith(self.below)]
        assert places, f"{self.file} has no line that begins with {self.below!r}: mend {CHANGES} of the recipe"
        text.insert(places[0], self.lines)
        path.write_text("".join(text))


class _Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recipe's ``changes.toml``."""

    add: tuple[_Change, ...]


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment on the tree, and fail with all that it has said where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "watchdog")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-_SAID_CHARS:] + done.stderr
    return done


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree in which all recipes were followed: files added, changes applied."""
    copy = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    pages = "watchdog/hangwatch/causes/pages"
    (copy / pages).symlink_to((ROOT / pages).readlink())
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache", dirs_exist_ok=True)
    for recipe in JUDGED_BY:
        shutil.copytree(RECIPES / recipe, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CHANGES))
        for change in msgspec.toml.decode((RECIPES / recipe / CHANGES).read_bytes(), type=_Changes).add:
            change.apply(copy)
    return copy


def test_every_recipe_is_followed() -> None:
    """A folder that nothing here names would be read by people, and by no test."""
    assert {path.name for path in RECIPES.iterdir()} == JUDGED_BY.keys()


@pytest.mark.parametrize("command", LINTERS.values(), ids=LINTERS)
def test_the_linters_accept_it(tree: Path, command: tuple[str, ...]) -> None:
    """Style, types, and the direction of imports."""
    run(tree, *command)


def test_their_tests_pass_and_so_do_those_that_judge_them(tree: Path) -> None:
    """Each recipe brings tests of its own, and they were run."""
    own = [path.relative_to(RECIPES / recipe) for recipe in JUDGED_BY for path in (RECIPES / recipe).rglob("test_*.py")]
    assert len(own) == len(JUDGED_BY)
    judges = [file for files in JUDGED_BY.values() for file in files]
    options = ("--tier", "check", "-n", "0", "-v", "-p", "no:cacheprovider")
    done = run(tree, sys.executable, "-m", "pytest", *options, *map(str, own), *judges, *RULES)
    assert all(re.search(rf"^{path}::.* PASSED", done.stdout, re.MULTILINE) for path in own)


def test_contributing_shows_what_the_recipes_have(tree: Path) -> None:
    """Each block of code that begins with a path is a part of that file."""
    shown = _BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert {Path(path).suffix for path, _ in shown} == {".py"}
    for path, code in shown:
        for part in code.split("...\n"):
            assert part.strip() in (tree / path).read_text(), path
