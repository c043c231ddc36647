"""Servers that never answer: behind a library's event loop, in a thread beside the main one; and among the ranks."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from support import JOBS, JobRunner

pytestmark = pytest.mark.usefixtures("long")
_LIMIT_S = 120.0
#: A hang is acted on as soon as a second look agrees.
_OPTIONS = ("--stall-after", "4", "--act-after", "2", "--on-hang", "stop")


def test_the_connection_of_the_event_loop_is_named(jobs: JobRunner, tmp_path: Path) -> None:
    """The thread is alive and its loop waits: nothing has ended, and the address says whom to ask."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = torchrun(JOBS / "fetching.py", f"http://127.0.0.1:{port}/shard")
        job = jobs.hangwatch("run", *_OPTIONS, "--state-dir", tmp_path / "state", "--", *program)
        assert job.wait(_LIMIT_S) == EXIT_STOPPED, job.stderr()
    (bundle,) = find_bundles(tmp_path / "state")
    found = read_incident(bundle).verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (0,), (1,))
    assert found.cause is not None
    assert found.cause.id == "blocked-io"
    assert f" to 127.0.0.1:{port}" in found.cause.explanation
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.source == "shard = files.cat_file(sys.argv[1])"


def test_the_line_of_a_rank_that_all_others_call_is_named(jobs: JobRunner, tmp_path: Path) -> None:
    """No rank is in a collective, and there is no group: a thread of rank 0 runs what the others have called."""
    program = torchrun(JOBS / "gathering.py", nproc=3)
    job = jobs.hangwatch("run", *_OPTIONS, "--state-dir", tmp_path / "state", "--", *program)
    assert job.wait(_LIMIT_S) == EXIT_STOPPED, job.stderr()
    (bundle,) = find_bundles(tmp_path / "state")
    found = read_incident(bundle).verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (0,), (1, 2))
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.source == "_CALLED.wait()"
