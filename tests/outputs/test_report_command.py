"""``hangwatch report`` as people call it, on bundles that lie on disk."""

from __future__ import annotations

import tarfile
from pathlib import Path

import msgspec
import pytest
from examples import hang_capture, hang_incident

from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import write_bundle
from support import JobRunner

OLDER = "20260101-000000-older"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with two incidents, the example's and an older one."""
    folder = tmp_path / "state"
    write_bundle(folder, hang_incident(), hang_capture())
    older = msgspec.structs.replace(hang_incident(), id=OLDER, onset_at="2026-01-01T00:00:00.000Z")
    write_bundle(folder, older, hang_capture())
    return folder


@pytest.mark.parametrize(
    ("format", "begins"), [("md", "## Deadlock, proven\n"), ("html", "<!doctype html>"), ("github", "##")]
)
def test_the_latest_incident_is_reported_in_every_format(
    jobs: JobRunner, state: Path, format: str, begins: str
) -> None:
    """By ``latest``: the incident whose hang began last."""
    job = jobs.hangwatch("report", "latest", "--format", format, "--state-dir", state)
    assert job.wait(120.0) == 0, job.stderr()
    assert job.stdout().startswith(begins)
    assert hang_incident().id in job.stdout()


def test_an_incident_is_found_by_id_by_path_and_in_an_archive(jobs: JobRunner, state: Path, tmp_path: Path) -> None:
    """The document is the stored one, whichever way it was named."""
    bundle = state / "incidents" / OLDER
    with tarfile.open(tmp_path / "sent.tar.gz", "w:gz") as archive:
        archive.add(bundle, arcname=OLDER)
    stored = msgspec.json.decode((bundle / "incident.json").read_bytes(), type=Incident)
    for named in (OLDER, f"{bundle}", f"{tmp_path / 'sent.tar.gz'}"):
        job = jobs.hangwatch("report", named, "--json", "--state-dir", state)
        assert job.wait(120.0) == 0, job.stderr()
        assert msgspec.json.decode(job.stdout(), type=Incident) == stored


def test_what_is_no_incident_is_one_line_with_the_repair(jobs: JobRunner, state: Path, tmp_path: Path) -> None:
    """An unknown id names the last ones; an empty state directory and a folder of something else say what to do."""
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        (("report", "other", "--state-dir", state), f"the last are {hang_incident().id}, {OLDER}"),
        (("report", "--state-dir", tmp_path / "none"), "name another state directory with --state-dir DIR"),
        (("report", f"{tmp_path}/empty"), "holds nothing to diagnose"),
    ):
        job = jobs.hangwatch(*arguments)
        assert job.wait(120.0) == 2
        assert said in job.stderr()
        assert (job.stdout(), job.stderr().count("\n")) == ("", 1)
