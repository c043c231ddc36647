"""``hangwatch run`` is not there as far as the command can tell: its streams, signals, terminal and status are its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched_runs import lines_of

from support import JOBS, SOURCE_ROOT, JobRunner, wait_for

_ECHO = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data); sys.stderr.buffer.write(data[::-1])"


@contextlib.contextmanager
def disposition(number: signal.Signals, action: signal.Handlers) -> Iterator[None]:
    """What is started meanwhile takes a signal by default, or ignores it, however the tests themselves were started."""
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_streams_pass_byte_for_byte(jobs: JobRunner, tmp_path: Path) -> None:
    """What goes in comes out, on both streams, whatever bytes it is; ours is one line on standard error."""
    data = bytes(range(256)) * 300
    (tmp_path / "input").write_bytes(data)
    with (tmp_path / "input").open("rb") as stdin:
        job = jobs.start(
            [
                sys.executable,
                "-m",
                "hangwatch",
                "run",
                "--state-dir",
                tmp_path / "state",
                "--",
                sys.executable,
                "-c",
                _ECHO,
            ],
            env={"PYTHONPATH": str(SOURCE_ROOT)},
            stdin=stdin.fileno(),
        )
    assert job.wait() == 0, job.stderr()
    assert job.stdout_path.read_bytes() == data
    ours, _, rest = job.stderr_path.read_bytes().partition(b"\n")
    assert ours.startswith(b"hangwatch: watching ")
    assert rest == data[::-1]


def test_an_input_that_is_closed_stays_closed(jobs: JobRunner, tmp_path: Path) -> None:
    """A pipe is passed on as it is: the command reads until its writer closes it."""
    job = jobs.start(
        [sys.executable, "-m", "hangwatch", "run", "--state-dir", tmp_path / "state", "--", "cat"],
        env={"PYTHONPATH": str(SOURCE_ROOT)},
        stdin=subprocess.PIPE,
    )
    assert job.process.stdin is not None
    for piece in (b"one\n", b"\x00\xff\n"):
        job.process.stdin.write(piece)
        job.process.stdin.flush()
        wait_for(lambda piece=piece: job.stdout_path.read_bytes().endswith(piece), what=f"{piece!r} to come through")
    job.process.stdin.close()
    assert job.wait() == 0
    assert job.stdout_path.read_bytes() == b"one\n\x00\xff\n"


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 128 + 9), ("kill -15 $$", 128 + 15)],
    ids=["ends-well", "ends-with-3", "killed", "terminated"],
)
def test_the_exit_status_is_the_commands(jobs: JobRunner, tmp_path: Path, script: str, status: int) -> None:
    """Its own status, or 128 and the number of the signal that ended it, as a shell has it."""
    job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", "sh", "-c", script)
    assert job.wait() == status
    assert len(lines_of(job.stderr())) == 1


def test_the_status_of_a_real_job_is_its_own(jobs: JobRunner, tmp_path: Path) -> None:
    """A rank that fails makes torchrun fail, and with it ``hangwatch run``, which leaves no run directory behind.

    A failure is no hang, so that nothing is run again; and a torchrun that would start an agent finds that it has one.
    """
    options = ("--on-hang", "restart", "--state-dir", tmp_path / "state", "--")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = ("--logs-specs", "hangwatch", JOBS / "steady.py", "--steps", "3", "--status", "3")
    job = jobs.hangwatch("run", *options, *launcher, *program, env={"TMPDIR": str(tmp_path)})
    assert job.wait() == 1
    assert "again" not in job.stderr()
    assert job.stderr().count("hangwatch: watching") == 1
    assert job.stdout().count("step 3\n") == 2
    assert not list((tmp_path / "state" / "incidents").iterdir())
    assert not list(tmp_path.glob("hangwatch-*/run-*"))


def test_signals_go_to_the_command(jobs: JobRunner, tmp_path: Path) -> None:
    """Each signal sent to hangwatch comes to the command once, and hangwatch ends when the command does."""
    command = [sys.executable, str(JOBS / "ending.py"), "USR1,USR2,HUP,INT,TERM"]
    with disposition(signal.SIGHUP, signal.SIG_DFL):
        job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", *command)
    job.wait_for_output("ready")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        job.send(number)
        job.wait_for_output(f"got {number.name}\n")
    assert job.wait() == 105
    assert "and 0 more\n" in job.stdout()


def test_a_hang_up_that_is_ignored_stays_so(jobs: JobRunner, tmp_path: Path) -> None:
    """Under nohup hangwatch goes on, and the command does not notice."""
    command = [sys.executable, str(JOBS / "ending.py"), "USR1,HUP"]
    with disposition(signal.SIGHUP, signal.SIG_IGN):
        job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", *command)
    job.wait_for_output("ready")
    job.send(signal.SIGHUP)
    job.send(signal.SIGUSR1)
    job.wait_for_output("got SIGUSR1\n")
    job.send(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
    assert "got SIGHUP" not in job.stdout()


@pytest.mark.soak  # test_e2e_metrics.py ends one, too
def test_sigterm_ends_a_real_job_whole(jobs: JobRunner, tmp_path: Path) -> None:
    """A scheduler that terminates hangwatch terminates the job, and nothing is left."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", *launcher, str(JOBS / "steady.py"))
    job.wait_for_output("[rank 1] step 3\n")
    job.send(signal.SIGTERM)
    assert job.wait() != 0
    wait_for(lambda: not job.members(), 10.0, "all processes of the job to be gone")


def test_a_terminal_is_passed_on_and_interrupts_once(jobs: JobRunner, tmp_path: Path) -> None:
    """The command sees the terminal on all its streams, and Ctrl-C reaches it once, not twice."""
    master, slave = os.openpty()
    try:
        # A session's leader that opens a terminal gets it as its controlling one: this is how Ctrl-C becomes a signal.
        shell = 'exec 0<>"$0" 1>&0 2>&0; exec "$@"'
        hangwatch = [sys.executable, "-m", "hangwatch", "run", "--state-dir", str(tmp_path / "state"), "--"]
        job = jobs.start(
            ["sh", "-c", shell, os.ttyname(slave), *hangwatch, sys.executable, str(JOBS / "ending.py"), "INT"],
            env={"PYTHONPATH": str(SOURCE_ROOT), "TERM": "dumb"},
        )
        seen = b""
        os.set_blocking(master, False)

        def output(text: bytes) -> bool:
            nonlocal seen
            with contextlib.suppress(OSError):  # nothing there now
                seen += os.read(master, 65536)
            return text in seen

        wait_for(lambda: output(b"ready, a terminal: [True, True, True]"), 30.0, "the command on the terminal")
        os.write(master, b"\x03")
        wait_for(lambda: output(b"and 0 more"), 30.0, "one interrupt and no other")
        assert seen.count(b"got SIGINT") == 1
        assert job.wait() == 101
    finally:
        os.close(slave)
        os.close(master)
