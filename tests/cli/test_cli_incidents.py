"""What the commands that look back print: ``incidents``, ``explain``, ``diagnose`` and ``dump`` on jobs that are others'."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

sys.path.append(str(Path(__file__).resolve().parents[1] / "outputs"))

from examples import hang_capture, hang_incident

from hangwatch.agent.host.stall_timeouts import StallTimeout, remove_stall_timeouts, write_stall_timeouts
from hangwatch.causes.knowledge import list_pages, read_page
from hangwatch.cli.commands.dump import _choose
from hangwatch.cli.commands.status import FromAgents, status_rows
from hangwatch.cli.main import app
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.errors import UserError
from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.sources.discovery.found_jobs import FoundJob


def invoke(*arguments: object, width: int = 200) -> Result:
    """What a command prints for a terminal of this width."""
    done = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert done.exit_code in {0, 1}, done.output
    return done


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory: an open incident, one that is over, and a dump."""
    folder = tmp_path / "state"
    incident = hang_incident()
    job = msgspec.structs.replace(incident.job, name="llama-sft")
    write_bundle(folder, msgspec.structs.replace(incident, job=job), hang_capture())
    over = msgspec.structs.replace(hang_incident("2026-02-01T00:00:00Z"), id="over", onset_at="2026-01-01T00:00:00Z")
    write_bundle(folder, over, hang_capture())
    dump = msgspec.structs.replace(incident, id="x-dump", onset_at="2025-12-01T00:00:00Z")
    write_bundle(folder, dump, hang_capture())
    return folder


def test_incidents_are_listed_with_state_job_kind_culprit_and_cause(state: Path) -> None:
    """The newest first, one row each, the id last; a row that is too long gives the id a line of its own."""
    lines = [line.split() for line in invoke("incidents", "--state-dir", state).output.splitlines()]
    assert lines[0] == ["STATE", "SINCE", "(UTC)", "JOB", "KIND", "CULPRITS", "CAUSE", "INCIDENT"]
    assert [line[0] for line in lines[1:]] == ["open", "over", "dump"]
    id = hang_incident().id
    assert lines[1][3:] == ["llama-sft", "deadlock", "0", "tuple-labels-gather", id]
    narrow = invoke("incidents", "--state-dir", state, width=80).output.splitlines()
    assert narrow[2].strip() == id
    assert invoke("incidents", "--open", "--state-dir", state).output.count("\n") == 2


def test_incidents_as_json(state: Path, tmp_path: Path) -> None:
    """The same in fields; nothing is an empty list, and a sentence for people."""
    found = json.loads(invoke("incidents", "--json", "--state-dir", state).output)
    assert [one["state"] for one in found] == ["open", "over", "dump"]
    assert found[0]["culprit_ranks"] == [0]
    assert (found[0]["title"], found[0]["cause"]) == ("llama-sft", "tuple-labels-gather")
    assert json.loads(invoke("incidents", "--json", "--state-dir", tmp_path).output) == []
    assert invoke("incidents", "--state-dir", tmp_path).output == f"No incidents in {tmp_path}.\n"


def test_status_knows_of_the_open_incident_of_a_job(state: Path) -> None:
    """By the job's id, if its processes are those of the incident; then ranks have the states that the capture found."""
    incident = hang_incident()
    ranks = tuple(LiveRank(e.rank, e.node, e.pid, "communicating") for e in incident.ranks)
    job = LiveJob(incident.job.id, 2, "torchrun", "", ranks)
    shown = FromAgents(state).add_to(LiveView(1, (job,))).jobs[0]
    assert shown.incident is not None
    assert shown.incident.id == incident.id
    assert [rank.state for rank in shown.ranks] == [entry.state for entry in incident.ranks]
    again = msgspec.structs.replace(job, ranks=tuple(msgspec.structs.replace(r, pid=r.pid + 9) for r in ranks))
    other = msgspec.structs.replace(job, id="another")
    assert FromAgents(state).add_to(LiveView(1, (again, other))) == LiveView(1, (again, other))


def test_status_knows_what_a_living_agent_says_of_a_stall(tmp_path: Path) -> None:
    """After how long it would be reported, and why; nothing of what a killed agent or another node has left there."""
    view, folder = LiveView(1, (LiveJob("job", 2, ranks=(LiveRank(0, "n", 1, "running"),)),)), tmp_path / "agents"
    assert FromAgents(tmp_path).add_to(view) == view
    write_stall_timeouts(tmp_path, {"job": StallTimeout(130.0, "as you set it")})
    (job,) = FromAgents(tmp_path).add_to(view).jobs
    assert (job.stall_after_s, job.stall_why) == (130.0, "as you set it")
    (row,) = status_rows(LiveView(1, (job,)))
    assert (row.stall_after_s, row.stall_why) == (130.0, "as you set it")
    (file,) = folder.iterdir()
    elsewhere = file.rename(folder / f"another-{file.name}")
    killed = folder / file.name.replace(str(os.getpid()), "999999999")
    killed.write_bytes(elsewhere.read_bytes())
    assert FromAgents(tmp_path).add_to(view) == view
    write_stall_timeouts(tmp_path, {})
    assert set(folder.iterdir()) == {file, elsewhere}
    file.write_bytes(b"\xff[")
    assert FromAgents(tmp_path).add_to(view) == view
    remove_stall_timeouts(tmp_path)
    assert set(folder.iterdir()) == {elsewhere}


@pytest.mark.parametrize("cause", list_pages())
def test_every_cause_is_explained(cause: str) -> None:
    """Title, sections and remedy of its page, in lines that fit; links to the web are whole, and Markdown is gone."""
    text = invoke("explain", cause, width=80).output
    page = read_page(cause)
    assert " ".join(text.split()).startswith(f"{cause}: {page.title} Symptom ")
    for section in page.sections:
        assert f"\n{section}\n" in text
    assert all(url in text for url in page.references)
    prose = [line for line in text.splitlines() if not line.startswith(("    ", "|")) and "http" not in line]
    assert max(map(len, prose)) <= 80
    assert "```" not in text
    assert "](" not in text


def test_causes_are_listed_and_a_misspelt_one_is_guessed() -> None:
    """A row each, and the nearest name."""
    assert len(invoke("explain").output.splitlines()) == len(list_pages()) + 1
    with pytest.raises(UserError, match="no cause named 'early-exitt'; did you mean early-exit"):
        CliRunner().invoke(app, ["explain", "early-exitt"], catch_exceptions=False)


def test_there_is_one_way_to_ask_for_json(state: Path) -> None:
    """``--json`` prints the document; ``--format`` is for reports, and ``--verbose`` for the whole verdict."""
    bundle = state / "incidents" / hang_incident().id
    as_json = invoke("diagnose", bundle, "--json")
    assert json.loads(as_json.output)["verdict"]["kind"] == "deadlock"
    short, whole = (invoke("diagnose", bundle, *more).output for more in ((), ("--verbose",)))
    assert len(short.splitlines()) < len(whole.splitlines()) / 2
    assert CliRunner().invoke(app, ["diagnose", str(bundle), "--format", "json"]).exit_code == 2


def _job(id: str, pid: int) -> FoundJob:
    return FoundJob(Job(id, 1, ("n",), "torchrun", f"torchrun {id}.py"), (RankIdentity(0, pid, 0.0, "n"),))


def test_a_dump_takes_the_callers_only_job_and_else_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other users' jobs are left alone unless they are named; the list has a pid, the user and the command of each."""
    mine, theirs, also_mine = _job("mine", 101), _job("theirs", 102), _job("also", 103)
    users = {101: os.getuid(), 102: os.getuid() + 1, 103: os.getuid()}
    monkeypatch.setattr("hangwatch.cli.commands.dump._user", lambda job: users[job.ranks[0].pid])
    assert _choose([mine, theirs], [], (), every=False) == [mine]
    assert _choose([mine, theirs], [], (), every=True) == [mine, theirs]
    assert _choose([mine, theirs], [], (102,), every=False) == [theirs]
    for jobs, says in (
        ([theirs], r"none of the 1 job\(s\) on this node is yours"),
        ([mine, also_mine, theirs], "you run 2 jobs"),
    ):
        with pytest.raises(UserError, match=f"{says}.*--pid PID.*--all"):
            _choose(jobs, [], (), every=False)
        listed = capsys.readouterr().err.splitlines()
        assert listed[0].split() == ["PID", "USER", "RANKS", "COMMAND"]
        assert [line.split()[0] for line in listed[1:]] == [str(job.ranks[0].pid) for job in jobs]
        assert listed[-1].endswith("torchrun theirs.py")
    with pytest.raises(UserError, match="no ranks of a distributed job found on this node"):
        _choose([], ["processes: not readable"], (), every=False)
    assert "processes: not readable" in capsys.readouterr().err
