"""What is published: the archives hold all that is needed, and stand beside PyPI's ``watchdog`` in a clean environment."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest

import hangwatch
from support import LONG_S, JobRunner

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]


def _build(source: Path, kind: str, folder: Path) -> Path:
    """The archive of that kind, made without the network: the builder is the suite's own."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder]
    reported = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert reported.returncode == 0, reported.stdout + reported.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    return _build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made of the source archive as pip does."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return _build(source, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_source_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Nothing is lost on the way: modules, the pages of the causes, the probe's folder, the licence, and no tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.read_bytes() == _build(ROOT, "wheel", tmp_path).read_bytes()
    pages = {path.name for path in (ROOT / "docs" / "causes").glob("*.md")}
    assert pages == {name.rpartition("/")[2] for name in names if name.startswith("hangwatch/causes/pages/")}
    assert {"hangwatch/probe/site/sitecustomize.py", "hangwatch/assistant/SKILL.md"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"hangwatch"}


def test_the_source_archive_has_all_that_is_deployed(sdist: Path) -> None:
    """Also what the chart has by links. hatchling would follow a link to a folder, and leave out the folder itself."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert ours - names == set()


def test_the_version_stands_in_one_place(sdist: Path, wheel: Path) -> None:
    """Archives have the package's own, and so have the chart with its image, the action, and the changelog."""
    version = hangwatch.__version__
    assert wheel.name.startswith(f"hangwatch-{version}-")
    assert sdist.name == f"hangwatch-{version}.tar.gz"
    chart = (ROOT / "deploy" / "helm" / "hangwatch" / "Chart.yaml").read_text()
    assert re.findall(r"^(?:version|appVersion): (.*)$", chart, re.MULTILINE) == [version, version]
    for file in (ROOT / "deploy" / "github" / "workflow.yml", ROOT / "docs" / "operations.md"):
        assert set(re.findall(r"deploy/github@v(\S+)", file.read_text())) == {version}
    assert re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] in {
        version,
        "Unreleased",
    }


def test_the_archives_pass_the_tools_of_publishers(sdist: Path, wheel: Path) -> None:
    """The description renders, the metadata is valid, and the wheel holds nothing that is there twice or by mistake."""
    for command in (["twine", "check", "--strict", sdist, wheel], ["check_wheel_contents", wheel]):
        reported = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
        assert reported.returncode == 0, reported.stdout + reported.stderr


def test_the_source_archive_is_small_and_says_where_the_tests_are(sdist: Path) -> None:
    """24 MB of kept captures serve nobody who builds a package; what is left out is named in it."""
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
        page = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/docs/development.md")
        assert page is not None
        assert "leaves out `tests` and `benchmarks`" in page.read().decode()
    assert not {"tests", "benchmarks", "Makefile", "build"} & tops
    assert sdist.stat().st_size < 3_000_000


def test_every_extra_is_in_the_table() -> None:
    """docs/versions.md has a row for each extra of the package, and for no other."""
    extras = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "versions.md").read_text()
    assert re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE) == list(extras)


def test_the_wheel_runs_beside_the_other_watchdog(jobs: JobRunner, wheel: Path, tmp_path: Path) -> None:
    """Installed where PyPI's ``watchdog`` is, both are imported, and ``hangwatch demo`` finds its hang."""
    home = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python, tools = home / "bin" / "python", [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    installed = subprocess.run([*tools, "install", "--quiet", "--no-index", "--no-deps", wheel], check=False)
    assert installed.returncode == 0
    # What it depends on is the suite's. Of a folder that is named this way only the packages are seen, not that ours is
    # installed there for development.
    (site,) = home.glob("lib/python*/site-packages")
    found = importlib.util.find_spec("watchdog")
    assert found is not None
    assert found.origin is not None
    (site / "suite.pth").write_text(str(Path(found.origin).parents[1]))
    code = "import watchdog.observers, hangwatch.probe; print(watchdog.__file__); print(hangwatch.__file__)"
    reported = jobs.start([python, "-c", code], env={"PYTHONPATH": None})
    assert reported.wait(LONG_S) == 0, reported.stderr()
    other, ours = map(Path, reported.stdout().split())
    assert not other.is_relative_to(ROOT / "watchdog")
    assert ours == site / "hangwatch" / "__init__.py"
    own = {"PYTHONPATH": None, "TMPDIR": str(tmp_path)}
    demo = jobs.start([home / "bin" / "hangwatch", "demo", "group-order"], env=own)
    assert demo.wait(LONG_S) == 0, demo.stdout() + demo.stderr()
    kept = Path(re.search(r"^Bundle +(\S.*)$", demo.stdout(), re.MULTILINE)[1])  # type: ignore[index]
    assert (kept / "incident.json").is_file()
