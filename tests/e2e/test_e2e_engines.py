"""Jobs that wait, and rightly so, for what is no rank of theirs: an inference engine beside trainers, work for an engine."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, find_bundles, read_incident, start_ray

from corpus.catalogue import unpack
from hangwatch.model.incident import HANG_KINDS, Verdict
from support import Job, JobRunner, wait_for

#: Programs of the corpus.
WEIGHTS = Path("several_worlds/weights_to_an_engine.py")
ROLLOUT = Path("several_worlds/rollout_engine.py")
IDLE = Path("serving/idle_engine.py")
ROLLOUTS = Path("actors/rollouts_of_a_generator.py")
KEYS = Path("several_worlds/keys_of_a_store.py")
#: Ray's temporary folder holds sockets: its path is short.
RAY = {"RAY_TMPDIR": "/tmp", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


def watch(jobs: JobRunner, state: Path, program: Path, *arguments: str) -> Job:
    """A program under ``hangwatch run`` that would end it where it finds a hang."""
    options = ("--on-hang", "stop", "--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    command = [sys.executable, str(unpack(program.parent.name, state.with_name("train")) / program.name), *arguments]
    return jobs.hangwatch("run", *options, "--", *command, env={"HANGWATCH_STATE_DIR": str(state), **RAY})


def named(verdict: Verdict) -> list[str]:
    """The culprits: processes of other worlds by their names."""
    return [verdict.names.get(rank, str(rank)) for rank in verdict.culprit_ranks]


def first_that_names(state: Path) -> Verdict | None:
    """The first verdict with a culprit: before it, a warning may say that a process waits for one that is not there yet."""
    found = (read_incident(bundle).verdict for bundle in find_bundles(state))
    return next((one for one in found if one.culprit_ranks), None)


def _assert_left_alone(jobs: JobRunner, state: Path, program: Path, *arguments: str) -> None:
    """Nothing is called a hang, nothing is ended, and the job succeeds by itself."""
    job = watch(jobs, state, program, *arguments)
    assert job.wait(120.0) == 0, job.stderr()
    incidents = [read_incident(bundle) for bundle in find_bundles(state)]
    assert not {one.verdict.kind for one in incidents} & set(HANG_KINDS)
    assert not any(one.verdict.proven for one in incidents)
    # While it is late, a warning may name the other world's process, and nobody else.
    names = {name.partition("[")[0] for one in incidents for name in named(one.verdict)}
    assert names <= {"engine", KEYS.stem}
    assert "about to end the job" not in job.stderr()


@pytest.mark.soak
def test_an_engine_without_requests_comes_to_its_end(jobs: JobRunner, tmp_path: Path) -> None:
    """Its workers await them in a collective."""
    _assert_left_alone(jobs, tmp_path / "state", IDLE, "--idle", "20")


@pytest.mark.soak  # `make test-long` replays its like: score-awaited-in-a-store of the recorded controls
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        pytest.param(WEIGHTS, ("--late", "update", "--seconds", "9"), id="weights-taken-late"),
        pytest.param(KEYS, ("--late", "score"), id="key-set-late"),
        pytest.param(WEIGHTS, ("--late", "start", "--seconds", "20"), id="engine-joins-late"),
        pytest.param(KEYS, ("--late", "start", "--seconds", "20"), id="store-joined-late"),
    ],
)
def test_a_job_that_awaits_a_process_or_a_key_comes_to_its_end(
    jobs: JobRunner, tmp_path: Path, program: Path, arguments: tuple[str, ...]
) -> None:
    """An engine that takes new weights late, one that has yet to join, and a key that is set late."""
    _assert_left_alone(jobs, tmp_path / "state", program, *arguments)


@pytest.mark.soak  # `make test-long` replays its like: rollout-that-takes-long of the recorded controls
@pytest.mark.usefixtures("long")
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is no part of this environment: make test-long installs it"
)
def test_a_rollout_that_takes_long_is_a_warning(jobs: JobRunner, tmp_path: Path) -> None:
    """Trainer 0 is in ``ray.get`` for more than twice the patience: it is named, or the actor that it awaits."""
    job = start_ray(lambda: watch(jobs, tmp_path / "state", ROLLOUTS))
    assert job.wait(180.0) == 0, job.stderr()
    incidents = [read_incident(bundle) for bundle in find_bundles(tmp_path / "state")]
    assert {one.verdict.kind for one in incidents} <= {"straggler"}
    assert {name.partition("[")[0] for one in incidents for name in named(one.verdict)} <= {"0", "Generator.generate"}
    assert "about to end the job" not in job.stderr()


@pytest.mark.soak  # the worker below is named in the same way, and test_e2e_worlds_apart.py has such a warning
def test_an_engine_that_never_comes_is_named(jobs: JobRunner, tmp_path: Path) -> None:
    """A process of another world, which has work of its own: a warning names it with its line, and leaves the trainers alone."""
    state = tmp_path / "state"
    job = watch(jobs, state, WEIGHTS, "--late", "update", "--seconds", "3600")
    found = wait_for(lambda: first_that_names(state), 90.0, "a warning that names a process")
    assert (found.kind, found.severity, found.proven, named(found)) == ("straggler", "warning", False, ["engine"])
    assert "because of engine" in found.summary
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.function == "generate"
    assert job.process.poll() is None


def test_a_worker_that_reads_in_the_middle_of_a_request_is_found(jobs: JobRunner, tmp_path: Path) -> None:
    """Without requests for longer than the patience its workers are left alone.

    Then the engine hangs where worker 0 reads its queue once more: it is named, and the job ended.
    """
    job = watch(jobs, tmp_path / "state", IDLE, "--idle", "20", "--stuck-at", "request 6")
    assert job.wait(120.0) != 0
    assert "request 5" in job.stdout()
    found = [read_incident(bundle).verdict for bundle in find_bundles(tmp_path / "state")]
    assert [(one.kind, one.culprit_ranks) for one in found if one.kind in HANG_KINDS] == [("stall", (0,))]
    assert not any(one.proven for one in found)


@pytest.mark.soak  # of the corpus: server-worker-reads-a-pipe; test_e2e_worlds_apart.py names such a worker on two hosts
def test_a_worker_of_an_engine_is_named_by_its_world(jobs: JobRunner, tmp_path: Path) -> None:
    """Trainer 0 sends weights to a server of two workers; worker 1 reads a pipe that nobody writes to: a chain of two worlds."""
    state = tmp_path / "state"
    job = watch(jobs, state, ROLLOUT, "--fault", "reads-a-pipe")
    found = wait_for(lambda: first_that_names(state), 120.0, "the worker to be named")
    assert (named(found), found.waiting_ranks[:2], found.proven) == (["rollout/1"], (0, 1), False)
    assert found.cause is not None
    assert found.cause.id == "blocked-io"
    assert "rollout/1" in found.summary
    assert job.process.poll() is None
