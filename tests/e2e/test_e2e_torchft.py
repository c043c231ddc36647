"""Real torchft: two replica groups, each a job of its own under ``hangwatch run --on-hang raise``, and one of them hangs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, find_bundles, read_incident

from hangwatch.outputs.push.audit import read_audit
from support import JOBS, Job, JobRunner, find_free_port

pytestmark = [
    pytest.mark.usefixtures("long"),
    pytest.mark.skipif(
        importlib.util.find_spec("torchft") is None,
        reason="torchft is no part of this environment: make test-long installs it",
    ),
]
STEPS = 90
LIGHTHOUSE = """
import sys, time
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind=f"[::]:{sys.argv[1]}", min_replicas=1, join_timeout_ms=3000)
print("up", flush=True)
time.sleep(600)
"""


def start_replica(jobs: JobRunner, folder: Path, number: int, lighthouse: int) -> Job:
    """One replica group of two ranks, which torchrun starts anew up to twice."""
    patience = ("--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    options = ("--state-dir", folder / str(number), *patience, "--on-hang", "raise")
    meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{find_free_port()}", "--rdzv-id", f"r{number}")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2", *meeting)
    env = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{lighthouse}", "OMP_NUM_THREADS": "1"}
    return jobs.hangwatch("run", *options, "--", *torchrun, JOBS / "replicas.py", str(number), str(STEPS), env=env)


def test_a_replica_group_that_hangs_raises_and_the_others_go_on(jobs: JobRunner, tmp_path: Path) -> None:
    """Its ranks raise, torchrun starts them anew, and they join again. Of the other one, which waits for it, nothing is ended:
    it waits for processes of another job, which is said, and no rank of its own is blamed."""
    port = find_free_port()
    jobs.start([sys.executable, "-c", LIGHTHOUSE, str(port)]).wait_for_output("up", 60.0)
    replicas = [start_replica(jobs, tmp_path, number, port) for number in (0, 1)]
    for replica in replicas:
        assert replica.wait(240.0) == 0, replica.stderr()
        assert f"step {STEPS} of 2 replicas" in replica.stdout()
    (bundle,) = find_bundles(tmp_path / "1")
    found = read_incident(bundle).verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (1,), (0,))
    assert [one.outcome for one in read_audit(bundle).actions] == ["raised in ranks 0-1"]
    for bundle in find_bundles(tmp_path / "0"):
        found = read_incident(bundle).verdict
        assert (found.kind, found.culprit_ranks) == ("straggler", ())
        assert "a member of a group without a name, and no process that hangwatch sees has that place" in found.summary
