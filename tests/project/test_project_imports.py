"""Every contract on imports catches what it is for: a planted import breaks it, and it alone is kept without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "watchdog/hangwatch"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
#: Imports that must not be: who imports, what is imported, and what the contract that forbids it does. A contract is known
#: by its type and by a module that it speaks of, so that it may be called something else.
PLANTED = [
    pytest.param("model/text.py", "hangwatch.analysis.case", "layers", "hangwatch.cli", id="model imports analysis"),
    pytest.param("analysis/case.py", "hangwatch.causes.precedence", "layers", "hangwatch.cli", id="analysis imports causes"),
    pytest.param("sources/redaction.py", "hangwatch.agent.service", "layers", "hangwatch.cli", id="source imports agent"),
    pytest.param("agent/host/log.py", "hangwatch.agent.service", "layers", "hangwatch.agent", id="host imports service"),
    pytest.param("model/text.py", "hangwatch.model.progress", "acyclic_siblings", "hangwatch", id="circle of files"),
    pytest.param("sources/proc/files.py", "hangwatch.hardware.analysis", "acyclic_siblings", "hangwatch", id="circle of rooms"),
    pytest.param("probe/beat.py", "hangwatch.sources.redaction", "forbidden", "hangwatch.agent", id="probe imports source"),
    pytest.param("probe/beat.py", "hangwatch.exchange.protocol", "forbidden", "hangwatch.exchange", id="probe imports exchange"),
    pytest.param("agent/service.py", "hangwatch.probe.beat", "forbidden", "hangwatch.probe", id="agent imports probe"),
    pytest.param("sources/redaction.py", "torch", "forbidden", "torch", id="source imports torch"),
    pytest.param("exchange/redis.py", "torch", "forbidden", "torch", id="exchange imports torch"),
    pytest.param("model/text.py", "hangwatch.sources.redaction", "forbidden", "hangwatch.hardware.sources", id="model observes"),
    pytest.param("analysis/case.py", "asyncio", "forbidden", "asyncio", id="analysis imports asyncio"),
    pytest.param("diagnosis/verdict.py", "subprocess", "forbidden", "subprocess", id="diagnosis imports subprocess"),
]  # fmt: skip

pytestmark = pytest.mark.usefixtures("real")  # lint-imports is a process


def contract_of(kind: str, module: str) -> str:
    """The name of the one contract of that type that speaks of that module."""
    keys = ("containers", "ancestors", "forbidden_modules", "layers")
    spoken = {c["name"]: next(c[key] for key in keys if key in c) for c in CONTRACTS if c["type"] == kind}
    (found,) = (name for name, modules in spoken.items() if module in modules)
    return str(found)


def lint(folder: Path) -> dict[str, bool]:
    """Whether each contract is kept by the copy of the package in a folder."""
    command = [
        sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--config",
        str(ROOT / "pyproject.toml"), "--no-cache",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )
    names = {str(c["name"]) for c in CONTRACTS}
    said = {n: " KEPT" in line for line in done.stdout.splitlines() for n in names if line.startswith(f"{n} ")}
    assert said.keys() == names, done.stdout + done.stderr
    assert (done.returncode == 0) == all(said.values())
    return said


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, folder / "hangwatch", ignore=shutil.ignore_patterns("__pycache__", "*.md", "pages"))
    return folder


def test_every_contract_is_kept_and_has_a_planted_import(copied: Path) -> None:
    """By the package as it is; and none is left out below."""
    assert all(lint(copied).values())
    assert {contract_of(*one.values[2:]) for one in PLANTED} == {str(c["name"]) for c in CONTRACTS}


@pytest.mark.parametrize(("importer", "imported", "kind", "module"), PLANTED)
def test_an_import_that_must_not_be_breaks_its_contract(
    copied: Path, importer: str, imported: str, kind: str, module: str
) -> None:
    """One line at the end of a file, as somebody might write it inside a function."""
    file = copied / "hangwatch" / importer
    before = file.read_text()
    file.write_text(f"{before}\n\ndef planted() -> None:\n    import {imported}\n")
    try:
        assert not lint(copied)[contract_of(kind, module)]
    finally:
        file.write_text(before)


def test_every_room_is_kept_apart_from_the_probe() -> None:
    """A room that is added has to be added to both contracts; only the demos may import torch."""
    rooms = {f"hangwatch.{one.parent.name}" for one in PACKAGE.glob("*/__init__.py")} - {"hangwatch.probe"}
    (of_probe,) = (c for c in CONTRACTS if c.get("source_modules") == ["hangwatch.probe"])
    (of_others,) = (c for c in CONTRACTS if "hangwatch.probe" in c.get("forbidden_modules", ()))
    assert set(of_probe["forbidden_modules"]) == rooms
    assert set(of_others["source_modules"]) == rooms - {"hangwatch.demos"}
