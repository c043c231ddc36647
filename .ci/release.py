"""``make release``: check that this commit is a release, build it into dist/, check that, and say what to upload.

Nothing is uploaded unless ``--upload`` is given; then ``twine upload`` asks for, or finds, its own credentials.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

VERSION = Path("watchdog/hangwatch/__init__.py")


class ReleaseError(Exception):
    """Why this is no release, one line each."""


def read_version(source: str) -> str:
    """The version in the package's own file. Raises ReleaseError."""
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise ReleaseError(f'{VERSION} has no line __version__ = "..."')
    return found[1]


def find_problems(version: str, changed: str, tags: Sequence[str], changelog: str) -> list[str]:
    """What keeps a commit from being this release, each with its repair.

    ``changed``: of ``git status --porcelain``; ``tags``: those of the commit; ``changelog``: the text of the file.
    """
    problems = []
    if changed.strip():
        files = ", ".join(line[3:] for line in changed.splitlines()[:5])
        problems.append(f"the tree is not clean ({files}): commit or remove what is not of the release")
    if f"v{version}" not in tags:
        has = f"is tagged {', '.join(tags)}" if tags else "has no tag"
        problems.append(
            f"this commit {has}, and the version is {version}: git tag -a v{version} -m 'hangwatch {version}'"
        )
    newest = next((line for line in changelog.splitlines() if line.startswith("## ")), "none")
    if not re.fullmatch(rf"## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", newest):
        problems.append(f"the newest section of CHANGELOG.md is {newest!r}: make it '## [{version}] - YYYY-MM-DD'")
    return problems


def build(root: Path, folder: Path) -> list[Path]:
    """The source archive, and the wheel that is made of it. Raises ReleaseError where the tree makes another wheel."""
    with tempfile.TemporaryDirectory() as temporary:
        source = _hatch(root, "sdist", folder)
        with tarfile.open(source) as archive:
            archive.extractall(temporary, filter="data")
        (unpacked,) = Path(temporary).iterdir()
        wheel = _hatch(unpacked, "wheel", folder)
        if _hatch(root, "wheel", Path(temporary) / "tree").read_bytes() != wheel.read_bytes():
            raise ReleaseError(
                "the source archive does not make the wheel that the tree makes: see pyproject.toml, sdist"
            )
    return [source, wheel]


def check(archives: Sequence[Path]) -> None:
    """Let twine and check-wheel-contents see the archives. Raises ReleaseError with what they say."""
    wheels = [archive for archive in archives if archive.suffix == ".whl"]
    _run([sys.executable, "-m", "twine", "check", "--strict", *archives])
    _run([sys.executable, "-m", "check_wheel_contents", *wheels])


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 for a release, 1 for anything else."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--upload", action="store_true", help="upload the archives when all is well")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    try:
        version = read_version((root / VERSION).read_text())
        tags = _run(["git", "tag", "--points-at", "HEAD"]).split()
        problems = find_problems(
            version, _run(["git", "status", "--porcelain"]), tags, (root / "CHANGELOG.md").read_text()
        )
        if problems:
            raise ReleaseError("\n".join(problems))
        shutil.rmtree(root / "dist", ignore_errors=True)
        archives = build(root, root / "dist")
        check(archives)
    except ReleaseError as error:
        print("\n".join(f"release: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 1
    print(f"hangwatch {version}, checked; to upload:")
    for archive in archives:
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        print(f"  {archive.relative_to(root)}  {archive.stat().st_size / 1e6:.1f} MB  sha256 {digest}")
    command = ["twine", "upload", *(str(archive.relative_to(root)) for archive in archives)]
    if options.upload:
        return subprocess.run([sys.executable, "-m", *command], check=False).returncode
    print(f"nothing is uploaded. To do it: {' '.join(command)} (or: make release OPTIONS=--upload)")
    return 0


def _hatch(source: Path, kind: str, folder: Path) -> Path:
    before = set(folder.glob("*"))
    _run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder], source)
    (made,) = set(folder.glob("*")) - before
    return made


def _run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """What a command prints. Raises ReleaseError with all that it has said."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command[:4]))}: {done.stdout}{done.stderr}".strip())
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
