"""What can be wrong with ``hangwatch run`` and the machine: one clear line with the repair, the right status, nothing lost."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import pytest
from watched_runs import captures_total, find_bundles, lines_of, read_incident, torchrun

from hangwatch.demos import find_scenario
from support import JOBS, SOURCE_ROOT, Job, JobRunner, wait_for

_NOBODY = 65534


def _only_line(job: Job) -> str:
    """The one line that was said, on standard error."""
    assert job.stdout() == ""
    (line,) = job.stderr().splitlines()
    assert line.startswith("hangwatch: ")
    return line


def test_a_command_that_does_not_exist(jobs: JobRunner, tmp_path: Path) -> None:
    """Status 127 as in a shell, and what to check."""
    job = jobs.hangwatch("run", "--state-dir", tmp_path, "--", "no-such-command", "--option")
    assert job.wait() == 127
    assert re.search(r"command not found: no-such-command; check the spelling", _only_line(job))


def test_a_command_that_cannot_be_executed(jobs: JobRunner, tmp_path: Path) -> None:
    """Status 126 as in a shell, and how to make it executable."""
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", str(script))
    assert job.wait() == 126
    assert (
        _only_line(job)
        == f"hangwatch: cannot execute {script}: permission denied; chmod +x it, or name its interpreter"
    )


def test_a_script_whose_interpreter_is_missing(jobs: JobRunner, tmp_path: Path) -> None:
    """The script is there, so it is not called missing: its first line is."""
    script = tmp_path / "train.sh"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", str(script))
    assert job.wait() == 127
    assert _only_line(job).endswith("its interpreter is missing (see its first line)")


@pytest.mark.parametrize("place", ["below-a-file", "in-proc"])
def test_a_state_directory_that_cannot_be_written(jobs: JobRunner, tmp_path: Path, place: str) -> None:
    """Nothing is started, and another directory is asked for."""
    (tmp_path / "file").write_text("")
    state = tmp_path / "file" / "state" if place == "below-a-file" else Path("/proc/state")
    job = jobs.hangwatch("run", "--state-dir", state, "--", "touch", str(tmp_path / "started"))
    assert job.wait() == 2
    line = _only_line(job)
    assert line.startswith(f"hangwatch: cannot write to the state directory {state}: ")
    assert line.endswith("; name another with --state-dir DIR")
    assert not (tmp_path / "started").exists()


def test_a_port_in_use(jobs: JobRunner, tmp_path: Path) -> None:
    """Nothing is started, and another address is asked for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = jobs.hangwatch(
            "run", "--state-dir", tmp_path, "--listen", f"127.0.0.1:{port}", "--", "touch", str(tmp_path / "started")
        )
        assert job.wait() == 2
    assert (
        _only_line(job)
        == f"hangwatch: port {port} on 127.0.0.1 is in use; choose another address with --listen 127.0.0.1:0"
    )
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--on-hang", "explode"),
            "--on-hang: 'explode' is none of report, stop, restart, raise, exec:CMD, restart,exec:CMD; for example 'exec:notify",
        ),
        (
            ("--on-hang", "exec:"),
            "--on-hang: 'exec:' is none of report, stop, restart, raise, exec:CMD, restart,exec:CMD; for example 'exec:notify",
        ),
        (("--stall-after", "-5"), "--stall-after: -5 is negative; give seconds, for example 60"),
        (("--listen", "nonsense"), "--listen: 'nonsense' is not HOST:PORT; for example 127.0.0.1:9753"),
    ],
    ids=["on-hang", "on-hang-without-command", "stall-after", "listen"],
)
def test_an_option_that_makes_no_sense(jobs: JobRunner, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    """Status 2, one line that says what is accepted, and nothing is started."""
    job = jobs.hangwatch("run", "--state-dir", tmp_path, *options, "--", "touch", str(tmp_path / "started"))
    assert job.wait() == 2
    assert says in _only_line(job)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("arguments", [(), ("--stall-after", "soon", "--", "true"), ("--no-such-option", "--", "true")])
def test_a_command_line_that_cannot_be_read(jobs: JobRunner, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Status 2 with a usage message, and no traceback."""
    job = jobs.hangwatch("run", "--state-dir", tmp_path, *arguments)
    assert job.wait() == 2
    assert job.stdout() == ""
    assert job.stderr().startswith("Usage: ")
    assert "Traceback" not in job.stderr()


def _python_without_pyspy(folder: Path) -> Path:
    """An interpreter with this one's packages and none of its programs beside it."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "above.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin" / "python"


def test_without_pyspy_the_hang_is_found_all_the_same(jobs: JobRunner, tmp_path: Path) -> None:
    """The line that names the repair comes first; kind, proof, culprit and both lines come from the recorders."""
    scenario = find_scenario("rank-conditional")
    assert scenario is not None
    python = str(_python_without_pyspy(tmp_path / "environment"))
    path = os.pathsep.join(p for p in os.defpath.split(os.pathsep) if p and not (Path(p) / "py-spy").exists())
    options = ["--on-hang", "stop", "--state-dir", str(tmp_path / "state")]
    job = jobs.start(
        [python, "-m", "hangwatch", "run", *options, "--", *scenario.command()],
        env={**scenario.full_environment(), "PATH": path, "PYTHONPATH": str(SOURCE_ROOT)},
    )
    assert job.wait(90.0) == 75, job.stderr()
    (line,) = [line for line in lines_of(job.stderr()) if "py-spy" in line]
    assert line == "hangwatch: py-spy is not installed, so stacks cannot be read; run: pip install py-spy"
    (bundle,) = find_bundles(tmp_path / "state")
    incident = read_incident(bundle)
    assert (incident.verdict.kind, incident.verdict.proven, incident.verdict.culprit_ranks) == ("deadlock", True, (0,))
    assert incident.verdict.cause is not None
    assert incident.verdict.cause.id == "ranks-diverged"
    divergence = incident.verdict.divergence
    assert divergence is not None
    assert divergence.culprit is not None
    assert divergence.others is not None
    assert (divergence.culprit.source, divergence.others.source) == ("dist.all_reduce(mean)", "dist.barrier()")
    assert [line for line in incident.missing if "py-spy is not installed (pip install py-spy)" in line]


@pytest.mark.usefixtures("long")
def test_where_ranks_may_not_be_read_the_hang_is_found_all_the_same(jobs: JobRunner, tmp_path: Path) -> None:
    """Stacks that the kernel refuses are named as missing with the repair, and stacks seen earlier do not stand in for them."""
    unprivileged: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to give up a privilege")
        unprivileged = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    gate = tmp_path / "gate"
    options = ["--on-hang", "stop", "--state-dir", str(tmp_path / "state")]
    command = torchrun(JOBS / "unreadable.py", "--gate", str(gate))
    job = jobs.start(
        [*unprivileged, sys.executable, "-m", "hangwatch", "run", *options, "--", *command],
        env={"PYTHONPATH": str(SOURCE_ROOT)},
    )
    found = re.search(r"metrics at (http://[^\s,]+)", job.wait_for_output("/metrics"))
    assert found is not None
    wait_for(lambda: captures_total(found[1]) >= 2, 30.0, "two looks at ranks that can be read", poll_s=0.2)
    gate.touch()
    assert job.wait(60.0) == 75, job.stderr()
    (bundle,) = find_bundles(tmp_path / "state")
    incident = read_incident(bundle)
    assert (incident.verdict.kind, incident.verdict.proven, incident.captured["stacks"]) == ("deadlock", True, False)
    for rank in (0, 1):
        (line,) = [line for line in incident.missing if line.startswith(f"stacks of rank {rank}: ")]
        assert "is not permitted" in line
        assert line.endswith(")")
        assert "SYS_PTRACE" in line or "run the agent as" in line or "ptrace_scope" in line
    assert "not permitted" in job.stderr()


def test_another_users_job_is_not_read(jobs: JobRunner, tmp_path: Path) -> None:
    """Whoever may not read a job is shown in one line that it may be another user's, with status 2."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to be somebody else")
    nobody = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", sys.executable]
    if jobs.start([*nobody, "-c", "import hangwatch.cli.main"], env={"PYTHONPATH": str(SOURCE_ROOT)}).wait() != 0:
        pytest.skip("this interpreter is root's alone")
    job = jobs.torchrun(JOBS / "steady.py")
    job.wait_for_output("[rank 1] step 3\n")
    with tempfile.TemporaryDirectory(prefix="nobody-") as place:  # pytest's own directories are root's alone
        os.chown(place, _NOBODY, _NOBODY)
        dump = jobs.start(
            [*nobody, "-m", "hangwatch", "dump", "--pid", str(job.pid), "--state-dir", place],
            env={"PYTHONPATH": str(SOURCE_ROOT)},
            cwd=Path("/"),
        )
        assert dump.wait() == 2, dump.stderr()
    assert dump.stdout() == ""
    assert "Traceback" not in dump.stderr()
    said = dump.stderr().splitlines()
    assert all(line.startswith("hangwatch: ") for line in said)
    assert said[-1].startswith(f"hangwatch: no ranks of a distributed job found for process {job.pid}")
    assert "as this user?" in said[-1]
    assert job.process.poll() is None


def test_a_run_directory_of_somebody_else_is_refused(jobs: JobRunner, tmp_path: Path) -> None:
    """A directory others may write to is no place for sockets: it is named, and nothing is started."""
    base = tmp_path / f"hangwatch-{os.getuid()}"
    base.mkdir()
    base.chmod(0o777)
    job = jobs.hangwatch(
        "run",
        "--state-dir",
        tmp_path / "state",
        "--",
        "touch",
        str(tmp_path / "started"),
        env={"TMPDIR": str(tmp_path)},
    )
    assert job.wait() == 2
    assert "is not a private directory of this user; remove it or set TMPDIR" in _only_line(job)
    assert not (tmp_path / "started").exists()
    assert stat.S_IMODE(base.stat().st_mode) == 0o777
