"""The walk-through "Adding a cause" of CONTRIBUTING.md works as it is written, on a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import SOURCE_ROOT

ROOT = SOURCE_ROOT.parent
CAPTURE = ROOT / "tests" / "fixtures" / "captures" / "rank_conditional.json"
SHOW = f"""
import sys
from pathlib import Path
import msgspec
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
verdict = diagnose(msgspec.json.decode(Path({str(CAPTURE)!r}).read_bytes(), type=Capture)).verdict
for cause in (verdict.cause, *verdict.alternatives):
    print(cause.id, '|', cause.title, '|', cause.explanation, '|', cause.remedy[0])
"""


def blocks() -> list[tuple[str, str]]:
    """The files of the walk-through: the path that each block of code begins with, and the rest of it."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("\n## Adding a cause\n")[1].split("\n## Adding a metric")[0]
    found = re.findall(r"```(?:python|markdown)\n(?:#|<!--) (\S+)(?: -->)?\n(.*?)```", section, re.DOTALL)
    return list(found)


@pytest.mark.usefixtures("real")
def test_the_toy_cause_is_found_and_its_page_shown(tmp_path: Path) -> None:
    """Its page, its rule and its line in the registry, as printed, and a verdict that names it with title and remedy."""
    shutil.copytree(SOURCE_ROOT, tmp_path / "watchdog", symlinks=False)
    written = blocks()
    assert [Path(path).suffix for path, _ in written] == [".md", ".py", ".py"]
    package = tmp_path / "watchdog" / "hangwatch" / "causes"
    for path, body in written:
        name = Path(path).name
        if path.startswith("docs/causes/"):
            (package / "pages" / name).write_text(body)
        elif name == "registry.py":
            text = (package / name).read_text()
            imported, listed = body.strip().splitlines()
            text = text.replace("\nRULES: tuple", f"\n{imported}\n\nRULES: tuple", 1)
            text = text.replace("    unknown.unknown,\n", f"    unknown.unknown,\n    {listed.strip()}\n", 1)
            (package / name).write_text(text)
        else:
            (tmp_path / path).write_text(body)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "watchdog")}
    shown = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("many-groups ")]
    assert "A rank waits in a job of several ranks" in line
    assert "ranks wait" in line
    assert "Look at the waits" in line
