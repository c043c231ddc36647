"""``python -m matrix [PYTHON:TORCH ...]``: build each cell, run its hangs, and write how it went."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

import hangwatch
from hangwatch.demos import find_scenario
from hangwatch.outputs.bundle.bundle import list_incidents
from matrix.cells import HANGS, Cell, Result, Results, describe, parse_cells, render, with_table
from matrix.environment import CellError, build
from support import LONG_S, JobRunner

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "status.md"
FOLDER = ROOT / "build" / "matrix"
HOW = "make matrix: the built wheel, installed into a new environment beside each PyTorch; Gloo on CPUs, no GPU"


def main() -> int:
    """Returns 0 if every cell is good, 1 if not, 2 for names that are no pairs of versions."""
    parser = argparse.ArgumentParser(prog="python -m matrix", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="PYTHON:TORCH", help="pairs of versions; all of ours unless given")
    parser.add_argument("--keep", action="store_true", help="leave the environments in build/matrix (1 to 3 GB each)")
    options = parser.parse_args()
    try:
        cells = parse_cells(options.cells)
    except ValueError as error:
        print(f"matrix: {error}", file=sys.stderr)
        return 2
    shutil.rmtree(FOLDER, ignore_errors=True)
    wheel = _build_wheel(FOLDER / "wheel")
    commit = _commit()
    rows = []
    for number, cell in enumerate(cells, 1):
        print(f"[{number}/{len(cells)}] Python {cell.python}, PyTorch {cell.torch} ...", flush=True)
        folder = FOLDER / f"{cell.python}-{cell.torch}"
        rows.append(msgspec.structs.replace(_run_cell(cell, wheel, folder), commit=commit))
        if not options.keep:
            shutil.rmtree(folder / "environment", ignore_errors=True)
        _write(rows[-1])  # at once: a cell takes minutes
    print(render(rows), end="")
    return 0 if all(row.good for row in rows) else 1


def _build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _commit() -> str:
    """That of the source tree, marked where the package differs from it; empty in an archive without git."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(
        [*git, "diff", "--quiet", "HEAD", "--", "watchdog"], check=False, stderr=subprocess.DEVNULL
    )
    return head.stdout.strip() + ("+" if changed.returncode == 1 else "") if head.returncode == 0 else ""


def _run_cell(cell: Cell, wheel: Path, folder: Path) -> Result:
    day = datetime.datetime.now(datetime.timezone.utc).date()
    kernel = platform.release().partition("-")[0]
    taken = f"{day}, hangwatch {hangwatch.__version__}, Linux {kernel}, {os.cpu_count()} cores"
    try:
        python = build(
            cell.python, cell.torch, wheel, folder / "environment", shlex.split(os.environ.get("TORCH_OPTIONS", ""))
        )
    except CellError as error:
        return Result(cell, failed=f"not installed: {error}", taken=taken)
    runner = JobRunner(folder / "jobs")
    try:
        code = "import platform, torch; print(platform.python_version(), torch.__version__)"
        versions = runner.start([python, "-c", code], {"PYTHONPATH": None})
        if versions.wait(LONG_S):
            complaint = (versions.stderr().strip() or "no word").splitlines()[-1]
            return Result(cell, failed=f"PyTorch is not imported: {complaint}", taken=taken)
        found = versions.stdout().split()
        hangs = {name: _find(name, python, runner, folder) for name in HANGS}
        return Result(cell, found[0], found[1], hangs, taken=taken)
    finally:
        runner.end_all()


def _find(name: str, python: Path, runner: JobRunner, folder: Path) -> str:
    """What hangwatch says of the demo, by the incident it has left."""
    temporary = folder / "tmp" / name
    temporary.mkdir(parents=True)
    demo = runner.start([python.parent / "hangwatch", "demo", name], {"PYTHONPATH": None, "TMPDIR": str(temporary)})
    demo.wait(LONG_S)
    expected = find_scenario(name)
    assert expected is not None
    incidents = [one for state in temporary.glob("hangwatch-demo-*") for one in list_incidents(state)]
    said = describe(expected, incidents[-1].verdict if incidents else None)
    print(f"    {name}: {said}", flush=True)
    return said


def _write(row: Result) -> None:
    before = msgspec.json.decode(RESULTS.read_bytes(), type=Results) if RESULTS.exists() else Results(HOW)
    results = before.merged([row])
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    PAGE.write_text(with_table(PAGE.read_text(), results.cells))


if __name__ == "__main__":
    sys.exit(main())
