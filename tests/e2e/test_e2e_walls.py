"""Walls: a full disk keeps a hang from being stored and not from being reported; other users are kept from the ranks."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched_runs import torchrun

from hangwatch.demos import find_scenario
from hangwatch.model.errors import EXIT_STOPPED
from support import JOBS, LONG_S, SOURCE_ROOT, JobRunner, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems and changes users, which takes root")


@pytest.fixture(autouse=True)  # made before the jobs of a test, so that it outlives them
def node() -> Iterator[Path]:
    """A short folder for run directories."""
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        yield Path(folder)


@needs_root
def test_a_state_directory_may_be_full(jobs: JobRunner, node: Path) -> None:
    """No bundle can be written: the hang is reported all the same, with the reason, and the job ended as asked."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    state = node / "state"
    state.mkdir()
    script = (
        'mount -t tmpfs -o size=16k none "$0" && mkdir -m 700 "$0/incidents" && '
        '{ head -c 1000000 /dev/zero > "$0/fill" 2>/dev/null; exec "$@"; }'
    )
    entry = "import sys; sys.argv[0] = 'hangwatch'; from hangwatch.cli.main import main; main()"
    ours = [sys.executable, "-c", entry, "run", "--state-dir", state, "--on-hang", "stop", "--", *scenario.command()]
    job = jobs.start(
        ["unshare", "--mount", "sh", "-c", script, state, *ours],
        env={**scenario.full_environment(), "TMPDIR": str(node), "PYTHONPATH": str(SOURCE_ROOT)},
    )
    assert job.wait(LONG_S) == EXIT_STOPPED, job.stderr()
    said = job.stderr()
    assert "group-order-inversion" in said
    assert "No space left on device" in said
    assert "the bundle could not be written" in said
    assert "Traceback" not in "".join(line for line in said.splitlines() if line.startswith("hangwatch"))


@needs_root
def test_another_user_reaches_no_socket(jobs: JobRunner, node: Path) -> None:
    """A local user who is neither root nor the job's own cannot connect to a rank's sockets, nor read or leave a beat."""
    node.chmod(0o755)
    job = jobs.hangwatch(
        "run", "--state-dir", node / "state", "--", *torchrun(JOBS / "steady.py"), env={"TMPDIR": str(node)}
    )
    beats = wait_for(lambda: list(node.glob("hangwatch-*/run-*/ranks/*.beat")), 90.0, "a beat", poll_s=0.1)
    sockets = wait_for(lambda: [p for p in beats[0].parent.iterdir() if p.is_socket()], 60.0, "a socket", poll_s=0.1)
    code = f"""
import os, socket
os.setgid(64998); os.setgroups([]); os.setuid(64998)
def refused(what):
    try:
        what()
    except PermissionError:
        return True
paths = {[str(path) for path in sockets]!r}
print(all(refused(lambda: socket.socket(socket.AF_UNIX).connect(path)) for path in paths))
print(refused(lambda: open({str(beats[0])!r})), refused(lambda: open({str(beats[0].parent / "1.beat")!r}, "w")))
"""
    other = jobs.start([sys.executable, "-I", "-S", "-c", code])
    assert other.wait() == 0, other.stderr()
    assert other.stdout().split() == ["True", "True", "True"]
    assert job.process.poll() is None
