"""A rank reads through a library's event loop, in a thread beside the main one, from a server that never answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from support import JOBS, JobRunner

_LIMIT_S = 120.0


@pytest.mark.usefixtures("long")
def test_the_connection_of_the_event_loop_is_named(jobs: JobRunner, tmp_path: Path) -> None:
    """The thread is alive and its loop waits: nothing has ended, and the address says whom to ask."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options = ("--stall-after", "4", "--act-after", "2", "--on-hang", "stop", "--state-dir", tmp_path / "state")
        job = jobs.hangwatch("run", *options, "--", *torchrun(JOBS / "fetching.py", f"http://127.0.0.1:{port}/shard"))
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
