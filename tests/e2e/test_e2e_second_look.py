"""Report early, act late: a job whose rank hangs in a read is reported, and what is done about it comes after a second look."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
from watched_runs import find_bundles, listening_ports, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import HANG_KINDS
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, Job, JobRunner, wait_for

pytestmark = pytest.mark.usefixtures("real")
_LIMIT_S = 120.0
#: Long enough to look at the report meanwhile, also on a busy machine.
_ACT_AFTER_S = "20"


@dataclass
class Training:
    """Two ranks under ``hangwatch run`` with a patience of 3 s, of which rank 1 waits for a licence."""

    job: Job
    folder: Path

    @property
    def bundle(self) -> Path:
        """The bundle of the one incident, once it is a hang: on a busy machine it may be a warning at first."""

        def hung() -> Sequence[Path]:
            found = find_bundles(self.folder / "state")
            return found if any(read_incident(one).verdict.kind in HANG_KINDS for one in found) else ()

        (bundle,) = wait_for(hung, _LIMIT_S, "the incident")
        return bundle

    def livez(self) -> tuple[int, dict[str, object]]:
        """What a liveness probe gets: status and body."""
        found = re.search(r"metrics at (\S+)/metrics", self.job.stderr())
        assert found is not None
        try:
            with urllib.request.urlopen(f"{found[1]}/livez", timeout=60) as answer:  # noqa: S310  # our own
                return int(answer.status), json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def go_on(self) -> None:
        """Give rank 1 its licence."""
        (self.folder / "hang-1").unlink()
        (self.folder / "pipe-1").write_bytes(b".")

    def end(self) -> int:
        """Have it train to its end; returns the exit status."""
        (self.folder / "end").touch()
        return self.job.wait(_LIMIT_S)


def start(jobs: JobRunner, folder: Path, *options: str) -> Training:
    """A job that waits for its licence in its first step."""
    (folder / "hang-1").touch()
    command = torchrun(JOBS / "nodes.py", str(folder))
    job = jobs.hangwatch("run", "--stall-after", "3", *options, "--state-dir", folder / "state", "--", *command)
    return Training(job, folder)


def test_a_slow_rank_is_reported_and_not_stopped(jobs: JobRunner, tmp_path: Path) -> None:
    """It moves before the time that the verdict names: the incident is over, nothing was done, and the job succeeds.

    The agent of a job on one node opens no port but its page's meanwhile, and does not load torch.
    """
    training = start(jobs, tmp_path, "--on-hang", "stop")
    incident = read_incident(training.bundle)
    assert (incident.verdict.kind, incident.verdict.proven, incident.verdict.culprit_ranks) == ("stall", False, (1,))
    look = incident.second_look
    assert look is not None
    assert (look.action, look.passed) == ("end the job", False)
    said = " ".join(training.job.wait_for_output("unless a rank moves").split())
    assert f"hangwatch will end the job at {look.until[11:19]} UTC, unless a rank moves" in said
    status, body = training.livez()
    assert (status, body["ok"]) == (200, True)
    assert [one["until"] for one in body["hangs"]] == [look.until]  # type: ignore[attr-defined]
    assert len(listening_ports(training.job.pid)) == 1
    assert "libtorch" not in Path(f"/proc/{training.job.pid}/maps").read_text()
    assert "spans nodes" not in training.job.stderr()
    training.go_on()
    training.job.wait_for_output("is over: the hang resolved")
    assert training.job.process.poll() is None
    assert read_incident(training.bundle).ended_at is not None
    assert training.end() == 0
    assert read_audit(training.bundle).actions == ()


def test_a_hang_is_stopped_after_the_second_look(jobs: JobRunner, tmp_path: Path) -> None:
    """Not before the time that the report names, and then the captures have agreed."""
    training = start(jobs, tmp_path, "--on-hang", "stop", "--act-after", _ACT_AFTER_S)
    reported = read_incident(training.bundle).second_look
    assert training.job.wait(_LIMIT_S) == EXIT_STOPPED, training.job.stderr()
    look = read_incident(training.bundle).second_look
    assert reported is not None
    assert look is not None
    assert (reported.passed, look.passed) == (False, True)
    (taken,) = read_audit(training.bundle).actions
    assert taken.action == "stop"
    assert taken.at_s >= datetime.fromisoformat(look.until.replace("Z", "+00:00")).timestamp()
    assert look.until >= reported.until


def test_a_liveness_probe_fails_after_the_second_look(jobs: JobRunner, tmp_path: Path) -> None:
    """As long as the rank hangs; whatever is to be done about it otherwise."""
    training = start(jobs, tmp_path, "--act-after", _ACT_AFTER_S)
    incident = read_incident(training.bundle)
    assert not incident.may_be_acted_on
    assert incident.second_look is not None
    until = datetime.fromisoformat(incident.second_look.until.replace("Z", "+00:00"))
    assert training.livez()[0] == 200 or datetime.now(timezone.utc) >= until  # a busy machine may answer after it
    wait_for(lambda: training.livez()[0] == 503, _LIMIT_S, "the probe to fail", poll_s=0.2)
    assert read_incident(training.bundle).may_be_acted_on
    training.go_on()
    wait_for(lambda: training.livez()[0] == 200, _LIMIT_S, "the probe to succeed", poll_s=0.2)
    assert training.end() == 0
    assert read_incident(training.bundle).id == incident.id
