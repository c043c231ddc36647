"""``run --events``: what a program that starts jobs follows, from a real hang and from a job that ends."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
from watched_runs import find_bundles

from hangwatch.demos import find_scenario
from support import SOURCE_ROOT, JobRunner, wait_for

ENTRY = "import sys; sys.argv[0] = 'hangwatch'; from hangwatch.cli.main import main; main()"


def events_of(file: Path) -> list[dict[str, Any]]:
    """The events in a file, in order."""
    return [msgspec.json.decode(line) for line in file.read_text().splitlines()]


def test_a_hang_that_is_stopped(jobs: JobRunner, tmp_path: Path) -> None:
    """From the start to the exit status, through a descriptor; the verdict is printed as ever, and no rank has the descriptor."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    file = tmp_path / "events.jsonl"
    options = ("run", "--state-dir", str(tmp_path / "state"), "--on-hang", "stop", "--events", "3")
    command = shlex.join([sys.executable, "-c", ENTRY, *options, "--", *scenario.command()])
    env = {**scenario.full_environment(), "PYTHONPATH": str(SOURCE_ROOT)}
    job = jobs.start(["bash", "-c", f"exec {command} 3>{shlex.quote(str(file))}"], env=env)
    ranks = wait_for(job.ranks, 120.0, "the ranks")
    for process in ranks.values():
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                assert str(file) != str(link.readlink())
    assert job.wait(180.0) == 75
    events = events_of(file)
    # The ranks end before all that was done about them has.
    events[3:5] = sorted(events[3:5], key=lambda event: str(event["event"]))
    assert [event["event"] for event in events] == [
        "started", "job_found", "incident_confirmed", "action_taken", "incident_over", "ended",
    ]  # fmt: skip
    assert all(event["time"].endswith("Z") and event["message"] and event["level"] == "info" for event in events)
    started, found, confirmed, taken, over, ended = events
    assert (started["schema"], started["url"].startswith("http://127.0.0.1:")) == ("hangwatch.events/1", True)
    assert (found["world_size"], found["launcher"]) == (2, "torchrun")
    (bundle,) = find_bundles(tmp_path / "state")
    for event in (confirmed, over):
        assert (event["incident"], event["bundle"], event["job"]) == (bundle.name, str(bundle), found["job"])
        assert (event["kind"], event["proven"], event["severity"]) == ("deadlock", True, "critical")
        assert event["cause"] == "group-order-inversion"
    assert (taken["incident"], taken["action"], taken["dry_run"]) == (bundle.name, "stop", False)
    assert "ended" in taken["outcome"]
    assert over["message"] == f"incident {bundle.name} is over: hangwatch has stopped the job"
    assert ended["status"] == 75
    assert "DEADLOCK" in job.stderr()
    assert job.stderr().count('"event"') == 0


def test_a_job_that_ends(jobs: JobRunner, tmp_path: Path) -> None:
    """To a file, whose end is continued; the status is the command's own."""
    file = tmp_path / "events.jsonl"
    for status in (0, 7):
        script = tmp_path / "end.py"
        script.write_text(f"raise SystemExit({status})")
        job = jobs.hangwatch("run", "--state-dir", tmp_path, "--events", file, "--", sys.executable, script)
        assert job.wait(120.0) == status
    assert [(e["event"], e.get("status")) for e in events_of(file) if e["event"] != "job_found"] == [
        ("started", None),
        ("ended", 0),
        ("started", None),
        ("ended", 7),
    ]


def test_a_reader_that_goes_away(jobs: JobRunner, tmp_path: Path) -> None:
    """The job goes on to its end, and one line says that nobody is told any more."""
    options = ("run", "--state-dir", str(tmp_path), "--events", "3")
    command = shlex.join([sys.executable, "-c", ENTRY, *options, "--", "sh", "-c", "cat gone; echo done"])
    reader = "{ read -r line; exec 0<&-; echo > gone; }"  # its end is closed before the job goes on
    shell = f"set -o pipefail; mkfifo gone; exec 4>&1; {{ {command} 3>&1 >&4; }} | {reader}"
    job = jobs.start(["bash", "-c", shell], env={"PYTHONPATH": str(SOURCE_ROOT)})
    assert job.wait(120.0) == 0
    assert "done" in job.stdout()
    assert job.stderr().count("no more events to --events 3: Broken pipe") == 1


def test_a_descriptor_that_is_closed(jobs: JobRunner, tmp_path: Path) -> None:
    """Nothing is started."""
    job = jobs.hangwatch("run", "--state-dir", tmp_path, "--events", "9", "--", "touch", tmp_path / "touched")
    assert job.wait() == 2
    assert "--events 9 cannot be written to: Bad file descriptor; give a file or a descriptor" in job.stderr()
    assert not (tmp_path / "touched").exists()
