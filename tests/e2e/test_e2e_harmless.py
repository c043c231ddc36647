"""Whatever happens to us, nothing happens to the job: same losses and weights to the last bit, same output, same status.

``test_e2e_agent_killed`` kills the agent; here everything else that can go wrong with an agent, a probe and their files does, at
random moments, while a real training runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from watched_runs import captures_total, find_bundles, read_incident, torchrun

from hangwatch.model.incident import Verdict
from support import JOBS, LONG_S, SOURCE_ROOT, Job, JobRunner, is_alive, wait_for

#: The launcher's status is written by a shell above it, whatever becomes of the agent.
_SHELL = ("sh", "-c", '"$@"; echo $? > "$0"')
_VFORK = "#include <unistd.h>\nvoid uninterruptible(unsigned s) { if (vfork() == 0) { sleep(s); _exit(0); } }\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which takes root")


@pytest.fixture(autouse=True)  # made before the jobs of a test, so that it outlives them
def node() -> Iterator[Path]:
    """A short folder for run directories."""
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        yield Path(folder)


def _random_step(job: Job) -> None:
    """Wait for a moment of the training that nobody has chosen."""
    step = random.randrange(2, 30)
    wait_for(lambda: f"step {step}:" in job.stdout() or job.process.poll() is not None, 90.0, f"step {step}")


def _run_dir(node: Path) -> Path:
    """The run directory of the one ``hangwatch run`` on this node."""
    return next(iter(node.glob("hangwatch-*/run-*")))


def _check(job: Job, status: Path, undisturbed: str) -> None:
    """The job has come to its own end with its own result."""
    wait_for(lambda: status.exists() and status.read_text(), 120.0, "the job to come to its end")
    assert job.stdout() == undisturbed
    assert status.read_text() == "0\n"


def _start(jobs: JobRunner, node: Path, status: Path, script: str = "training.py", **environment: str) -> Job:
    options = ("--state-dir", node / "state", "--stall-after", "1", "--")
    command = (*_SHELL, str(status), *torchrun(JOBS / script))
    return jobs.hangwatch("run", *options, *command, env={"TMPDIR": str(node), **environment})


@pytest.mark.usefixtures("long")
def test_an_agent_that_stands_still_holds_nothing_up(
    jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str
) -> None:
    """The agent is stopped (SIGSTOP) at a random step and goes on only when the job is over; its own status is the job's."""
    job = _start(jobs, node, tmp_path / "status")
    _random_step(job)
    job.send(signal.SIGSTOP)
    _check(job, tmp_path / "status", undisturbed)
    job.send(signal.SIGCONT)
    assert job.wait() == 0


@pytest.mark.usefixtures("long")
def test_an_agent_may_come_late_and_go_early(jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str) -> None:
    """Agents are started and killed, one after the other, while a job with the probe's environment runs."""
    reported = subprocess.check_output(
        [sys.executable, "-m", "hangwatch", "env", "--json"],
        env={**os.environ, "TMPDIR": str(node), "PYTHONPATH": str(SOURCE_ROOT)},
        text=True,
    )
    environment = {**json.loads(reported), "TMPDIR": str(node)}
    job = jobs.start([*_SHELL, tmp_path / "status", *torchrun(JOBS / "training.py")], env=environment)
    for number in range(4):
        agent = jobs.hangwatch("agent", "--state-dir", node / "state", "--listen", ":0", env={"TMPDIR": str(node)})
        agent.wait_for_output("watching this node")
        if number % 2:
            _random_step(job)
        agent.send(signal.SIGKILL)
        agent.wait()
    _check(job, tmp_path / "status", undisturbed)


@pytest.mark.usefixtures("long")
def test_a_run_directory_may_go(jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str) -> None:
    """It is deleted under the probe's hands, again and again; agent and job go on."""
    job = _start(jobs, node, tmp_path / "status")
    for _ in range(3):
        _random_step(job)
        with contextlib.suppress(StopIteration):
            shutil.rmtree(_run_dir(node), ignore_errors=True)
    _check(job, tmp_path / "status", undisturbed)
    assert job.wait() == 0


@pytest.mark.usefixtures("long")
@needs_root
@pytest.mark.parametrize("trouble", ["full", pytest.param("read-only", marks=pytest.mark.soak)])
def test_a_run_directory_may_be_unusable(
    jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str, trouble: str
) -> None:
    """On a file system without space, or one that became read-only, no beat is written and the job does not notice."""
    spoil = "head -c 1000000 /dev/zero > $0/fill" if trouble == "full" else "mount -o remount,ro $0"
    run_dir = node / "run"
    run_dir.mkdir()
    script = (
        'mount -t tmpfs -o size=32k none "$0" && mkdir -m 700 "$0/ranks" && { ' + spoil + ' 2>/dev/null; '
        'touch "$0/ranks/x" && echo fits > "$0/ranks/x"; } 2>/dev/null; exec "$@"'
    )  # fmt: skip
    site = SOURCE_ROOT / "hangwatch" / "probe" / "site"
    command = [*_SHELL, tmp_path / "status", *torchrun(JOBS / "training.py")]
    job = jobs.start(
        ["unshare", "--mount", "sh", "-c", script, run_dir, *command],
        env={"HANGWATCH_RUN_DIR": str(run_dir), "PYTHONPATH": str(site), "TMPDIR": str(node)},
    )
    _check(job, tmp_path / "status", undisturbed)


def test_a_probe_may_fail_at_every_turn(jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str) -> None:
    """Half of all that the probe calls raises in its hands: no beat may come of it, and nothing else does either."""
    injected = tmp_path / "injected"
    job = _start(jobs, node, tmp_path / "status", PYTHONPATH=str(JOBS / "faulty_site"), INJECTED=str(injected))
    _check(job, tmp_path / "status", undisturbed)
    assert job.wait() == 0
    assert len(injected.read_text().splitlines()) > 20, "the faults were met"


def _pester(folder: Path, stop: threading.Event, done: list[int]) -> None:
    """Every way to be a bad client of the sockets that there is: silence, noise, floods, half requests, early ends."""
    held: list[socket.socket] = []
    noise = [
        b"",
        b"\0" * 4096,
        b"flight\n",
        b"flight " + b"x" * 500,
        b"POST /handler/",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\n" * 999,
    ]
    while not stop.wait(0.01):
        for path in list(folder.glob("run-*/ranks/*.*")):
            if path.suffix in {".beat", ".new", ".problem"}:
                continue
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(0.2)
            try:
                client.connect(str(path))
                client.sendall(random.choice(noise))
                done.append(1)
                if random.random() < 0.5:
                    held.append(client)
                    continue
            except OSError:
                pass
            client.close()
        while len(held) > 60:
            held.pop(0).close()
    for client in held:
        client.close()


@pytest.mark.usefixtures("long")
def test_a_hostile_client_of_the_sockets_gets_nothing_and_breaks_nothing(
    jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str
) -> None:
    """Connections that say nothing, nonsense or half of it, dozens at once, all through the training."""
    stop, done = threading.Event(), list[int]()
    folder = node / f"hangwatch-{os.getuid()}"
    pest = threading.Thread(target=_pester, args=(folder, stop, done))
    pest.start()
    try:
        job = _start(jobs, node, tmp_path / "status")
        _check(job, tmp_path / "status", undisturbed)
        assert job.wait() == 0
    finally:
        stop.set()
        pest.join()
    assert len(done) > 20, "the sockets were reached"


_PYSPIES = {
    "hangs": "#!/bin/sh\ntrap '' TERM\nsleep 1000\n",
    "crashes": "#!/bin/sh\nkill -SEGV $$\n",
    "babbles": "#!/bin/sh\nhead -c 3000000 /dev/urandom\n",
}


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize(
    "how", ["hangs", *(pytest.param(how, marks=pytest.mark.soak) for how in ("crashes", "babbles"))]
)
def test_a_stack_reader_may_fail(jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str, how: str) -> None:
    """py-spy hangs, crashes or writes nonsense while a rank pauses: the agent says so at most, and ends with the job."""
    fake = tmp_path / "bin"
    fake.mkdir()
    called = f"echo $$ >> {tmp_path}/called\n"
    (fake / "py-spy").write_text(_PYSPIES[how].replace("\n", "\n" + called, 1))
    (fake / "py-spy").chmod(0o755)
    options = ["run", "--state-dir", str(node / "state"), "--stall-after", "1", "--"]
    arguments = [*options, *_SHELL, str(tmp_path / "status"), *torchrun(JOBS / "training.py")]
    entry = f"import sys; sys.executable = {str(fake / 'python')!r}; from hangwatch.cli.main import main; main()"
    job = jobs.start(
        [sys.executable, "-c", entry, *arguments], env={"TMPDIR": str(node), "PYTHONPATH": str(SOURCE_ROOT)}
    )
    _check(job, tmp_path / "status", undisturbed)
    assert job.wait() == 0
    assert (tmp_path / "called").exists(), "the stack reader was called"
    left = [process for process in job.members() if is_alive(process)]
    assert all("sleep" in process.name() for process in left), "no reader is left behind but what it has left itself"


@pytest.mark.usefixtures("long")
def test_a_rank_in_uninterruptible_sleep(jobs: JobRunner, node: Path, tmp_path: Path, undisturbed: str) -> None:
    """No signal reaches it: it is named, with its state, by an agent that nothing holds up, and goes on as if unwatched."""
    (tmp_path / "vfork.c").write_text(_VFORK)
    library = tmp_path / "vfork.so"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("g++")
    assert compiler is not None
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-o", library, tmp_path / "vfork.c"], check=True)
    program = torchrun(JOBS / "uninterruptible.py", "--pause-s", str(LONG_S))
    options = ("--state-dir", node / "state", "--stall-after", "2", "--")
    command = (*_SHELL, str(tmp_path / "status"), *program)
    job = jobs.hangwatch("run", *options, *command, env={"TMPDIR": str(node), "LIBRARY": str(library)})

    def asleep() -> psutil.Process | None:
        with contextlib.suppress(psutil.Error, KeyError):
            rank = job.ranks()[1]
            return rank if rank.status() == psutil.STATUS_DISK_SLEEP else None
        return None

    rank = wait_for(asleep, 90.0, "a rank in uninterruptible sleep", poll_s=0.1)
    assert rank is not None

    def stall() -> Verdict | None:
        # On a busy machine a rank may have been late before that: an incident of its own.
        verdicts = (read_incident(bundle).verdict for bundle in find_bundles(node / "state"))
        return next((verdict for verdict in verdicts if verdict.kind == "stall"), None)

    verdict = wait_for(stall, 90.0, "the stall", poll_s=0.1)
    assert verdict is not None
    assert verdict.culprit_ranks == (1,)
    assert verdict.cause is not None
    assert any("state D" in one.says for one in verdict.cause.evidence if one.rank == 1), verdict.cause
    url = next(word for word in job.stderr().split() if word.endswith("/metrics,")).rstrip(",")
    looks = captures_total(url)
    wait_for(lambda: captures_total(url) > looks, 60.0, "the agent to go on", poll_s=0.2)
    assert rank.status() == psutil.STATUS_DISK_SLEEP
    for child in rank.children():  # for the end of which it sleeps
        child.kill()
    _check(job, tmp_path / "status", undisturbed)
    assert job.wait() == 0
