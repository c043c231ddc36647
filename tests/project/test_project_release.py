"""``make release``: what it refuses, and what it builds, in clones of the repository; and the workflow that publishes a tag.

GitHub itself was not here.
"""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import hangwatch

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]
VERSION = hangwatch.__version__
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def git(clone: Path, *arguments: str) -> None:
    """Run git as somebody."""
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@localhost"]
    subprocess.run(["git", *who, *arguments], cwd=clone, check=True, capture_output=True)


def release(clone: Path, *options: str, index: str = "") -> subprocess.CompletedProcess[str]:
    """What ``make release`` runs. ``index``: where twine uploads to."""
    command = [sys.executable, ".ci/release.py", *options]
    twine = {
        "TWINE_REPOSITORY_URL": index,
        "TWINE_USERNAME": "somebody",
        "TWINE_PASSWORD": "x",
        "TWINE_NON_INTERACTIVE": "1",
    }
    return subprocess.run(command, cwd=clone, env={**os.environ, **twine}, capture_output=True, text=True, check=False)


class Index(http.server.ThreadingHTTPServer):
    """A stand-in for a package index: takes what is posted to it. ``names``: of the archives, as they came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.names: list[str] = []


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers 200 to any upload (multipart/form-data, as twine 7 sends it)."""

    def do_POST(self) -> None:
        """Note the name of the file."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Index)
        self.server.names += [name.decode() for name in re.findall(rb'filename="([^"]+)"', body)]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index() -> Iterator[Index]:
    """Serves until the test ends."""
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the files of this one as they are now, all committed, and a dated section in its changelog."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", ":!tests", ":!benchmarks"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    folder = tmp_path / "clone"
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                target.write_bytes(source.read_bytes())
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [", f"## [{VERSION}] - 2026-01-01\n\n## [", 1))
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Release")
    return folder


def test_what_is_no_release_is_refused_with_its_repair(clone: Path) -> None:
    """A file of no commit, a tag of another version, a changelog without the version: all are said, and nothing is built."""
    git(clone, "tag", "v0.0.1")
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## [{VERSION}]", "## [Unreleased]"))
    refused = release(clone)
    assert refused.returncode == 1
    says = refused.stderr
    assert "the tree is not clean (CHANGELOG.md)" in says
    assert f"is tagged v0.0.1, and the version is {VERSION}: git tag -a v{VERSION}" in says
    assert f"make it '## [{VERSION}] - YYYY-MM-DD'" in says
    assert not (clone / "dist").exists()


def test_a_release_is_built_checked_and_uploaded_only_when_asked(clone: Path, index: Index) -> None:
    """Two archives, their checksums, and the command that would upload them; an old dist is gone."""
    address = f"http://127.0.0.1:{index.server_port}/"
    git(clone, "tag", f"v{VERSION}")
    (clone / "dist").mkdir()
    (clone / "dist" / "hangwatch-0.0.1.tar.gz").touch()
    done = release(clone, index=address)
    assert done.returncode == 0, done.stdout + done.stderr
    archives = sorted(path.name for path in (clone / "dist").iterdir())
    assert archives == [f"hangwatch-{VERSION}-py3-none-any.whl", f"hangwatch-{VERSION}.tar.gz"]
    assert all(name in done.stdout for name in archives)
    assert "nothing is uploaded. To do it: twine upload dist/" in done.stdout
    assert index.names == []
    uploaded = release(clone, "--upload", index=address)
    assert uploaded.returncode == 0, uploaded.stdout + uploaded.stderr
    assert sorted(index.names) == archives


def test_a_source_archive_that_loses_a_file_is_no_release(clone: Path) -> None:
    """The wheel from the archive would be another than that from the tree."""
    project = clone / "pyproject.toml"
    included = '"/LICENSE", "/pyproject.toml",\n]'
    text = project.read_text()
    assert included in text
    project.write_text(text.replace(included, f'{included}\nexclude = ["SKILL.md"]'))
    git(clone, "commit", "--quiet", "--all", "--message", "Lose a file")
    git(clone, "tag", f"v{VERSION}")
    refused = release(clone)
    assert refused.returncode == 1
    assert "does not make the wheel that the tree makes" in refused.stderr


def test_the_workflow_is_valid_and_zizmor_finds_nothing(tmp_path: Path) -> None:
    """By SchemaStore's schema, and in zizmor's regular persona: an action that a tag names would be found."""
    schema = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    named = tmp_path / "release.yml"
    named.write_text(re.sub(r"@[0-9a-f]{40} # ", "@", WORKFLOW.read_text()))
    assert named.read_text() != WORKFLOW.read_text()
    statuses = [
        subprocess.run([*command, path], capture_output=True, check=False).returncode == 0
        for command, path in ((schema, WORKFLOW), (["zizmor", "--offline"], WORKFLOW), (["zizmor", "--offline"], named))
    ]
    assert statuses == [True, True, False]


def test_each_job_of_the_workflow_has_the_rights_that_it_needs() -> None:
    """Only what talks to the package index gets an identity; it comes last, and what it uploads was built by ``make release``."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "archives": {"contents": "read"},
        "image": {"contents": "read", "packages": "write"},
        "chart": {"contents": "read", "packages": "write"},
        "index": {"id-token": "write"},
    }
    jobs = workflow["jobs"]
    assert ".ci/release.py" in jobs["archives"]["steps"][2]["run"]
    assert {job: jobs[job].get("needs") for job in jobs} == {
        "archives": None, "image": "archives", "chart": "image", "index": ["archives", "chart"],
    }  # fmt: skip
    assert all(
        re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
        for line in WORKFLOW.read_text().splitlines()
        if "uses:" in line
    )
