"""What hangwatch says of jobs that hang, or only look so, on the real ProcessGroupNCCL over the simulated device."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet

from conftest import PROGRAMS
from hangwatch.model.incident import Incident, SourceLine
from hangwatch.outputs.bundle.bundle import read_bundle
from support import Job, JobRunner, wait_for

#: Seconds that a culprit which does not move may take.
PATIENCE_S = "6"
LIMIT_S = 180.0
#: torch's own, in seconds, where it is to be reached.
TORCH_LIMIT_S = "45"
#: What torch's watchdog says then.
HANGS = "Watchdog caught collective operation timeout"
#: What its heartbeat monitor says where the watchdog does not get on.
STUCK = "watchdog got stuck for"
#: Exit status of ``hangwatch run`` where it has ended the job.
STOPPED = 75
SPIN, BLOCK = ({"SIMULATED_SYNC": how} for how in ("spin", "block"))

Watch = Callable[..., Job]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory of the run."""
    return tmp_path / "state"


@pytest.fixture
def watch(nccl: Path, jobs: JobRunner, state: Path) -> Watch:
    """Start a case of ``hangs.py`` on two ranks under ``hangwatch run``."""

    def start(case: str, *arguments: str, env: dict[str, str], on_hang: str = "stop") -> Job:
        launcher = [nccl, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        options = ["run", "--on-hang", on_hang, "--stall-after", PATIENCE_S, "--act-after", "2", "--"]
        environment: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": None, "HANGWATCH_STATE_DIR": str(state), **env}
        return jobs.hangwatch(*options, *launcher, PROGRAMS / "hangs.py", case, *arguments, env=environment)

    return start


def incidents(state: Path) -> list[Incident]:
    """The documents of the incidents, oldest first."""
    found = sorted(state.glob("incidents/*/incident.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Incident) for path in found]


def is_whole(dump: Path) -> bool:
    """Whether torch has written a dump to its end."""
    try:
        return bool(pickle.loads(dump.read_bytes()))  # noqa: S301  # torch's own, of a moment ago
    except (OSError, EOFError, pickle.UnpicklingError):
        return False


def lines_of(incident: Incident) -> list[str | None]:
    """The texts of the two lines that are shown."""
    divergence = incident.verdict.divergence
    lines: list[SourceLine | None] = [divergence.culprit, divergence.others] if divergence is not None else []
    return [line.source if line is not None else None for line in lines]


def _soak(*values: object) -> ParameterSet:
    """A hang whose like is among the kept captures of the corpus."""
    return pytest.param(*values, marks=pytest.mark.soak)


@pytest.mark.parametrize(
    ("case", "env", "kind", "culprits", "cause", "lines"),
    [
        ("branch", BLOCK, "deadlock", (0, 1), "ranks-diverged", ["dist.all_reduce(x)"] * 2),
        _soak("branch", SPIN, "deadlock", (0, 1), "ranks-diverged", ["dist.all_reduce(x)"] * 2),
        _soak("kinds", SPIN, "deadlock", (0, 1), "collective-mismatch", ["dist.broadcast(x, src=0)", "dist.all_reduce(x)"]),
        _soak("recv", BLOCK, "stall", (0, 1), "p2p-mismatch", ["dist.recv(y, src=1 - rank)"] * 2),
        _soak("caught", BLOCK, "stall", (1,), "ranks-diverged", ["dist.all_reduce(x)", "dist.all_reduce(y)"]),
        _soak("sizes", BLOCK, "stall", (0, 1), "shape-mismatch", ["dist.all_reduce(x[: 1000 - rank])"] * 2),
        _soak("sleeps", BLOCK, "stall", (1,), "unknown", ["time.sleep(10000)", "dist.all_reduce(x)"]),
        _soak("stopped", SPIN, "stall", (1,), "rank-stopped", ["os.kill(os.getpid(), signal.SIGSTOP)", "dist.all_reduce(x)"]),
    ],
)  # fmt: skip
def test_a_hang_on_nccl_is_told_by_its_own_lines(
    watch: Watch,
    state: Path,
    case: str,
    env: dict[str, str],
    kind: str,
    culprits: tuple[int, ...],
    cause: str,
    lines: list[str],
) -> None:
    """Culprits, cause, and the lines of the calls that hang, though the host has gone on to a later line."""
    job = watch(case, env=env)
    assert job.wait(LIMIT_S) == STOPPED, job.stderr()
    (incident,) = incidents(state)
    verdict = incident.verdict
    assert verdict.cause is not None
    assert (verdict.kind, verdict.culprit_ranks, verdict.cause.id) == (kind, culprits, cause)
    assert lines_of(incident) == lines
    waiting = {entry.rank: entry.state for entry in incident.ranks if entry.rank not in culprits or len(culprits) == 2}
    assert set(waiting.values()) == {"waiting"}
    if case == "branch":
        assert "`if rank == 0:`" in verdict.cause.explanation
    if case == "sizes":
        assert "collective-mismatch" not in {other.id for other in verdict.alternatives}
    if case == "recv":
        assert ("flight recorder", "waits in recv from rank 1") in {(e.source, e.says) for e in verdict.cause.evidence}


def test_a_rank_that_spins_is_told_by_the_code_it_runs_in(watch: Watch, state: Path) -> None:
    """Nothing in its line, and no local of its, says that it asks the device: the kernel says that it is in the runtime."""
    job = watch("number", env=SPIN)
    assert job.wait(LIMIT_S) == STOPPED, job.stderr()
    (incident,) = incidents(state)
    verdict = incident.verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (1,), (0,))
    assert lines_of(incident) == ["time.sleep(10000)", "dist.all_reduce(tensor)"]
    _, capture = read_bundle(state / "incidents" / incident.id)
    files = [p.runs_in for p in capture.ranks[0].processes if p.runs_in]
    assert files
    assert all(any(name.startswith("libcudart") for name in found) for found in files)


@pytest.mark.parametrize("connect", ["init", _soak("first")])
def test_a_first_collective_waits_before_its_communicator_is_made(watch: Watch, state: Path, connect: str) -> None:
    """No recorder knows its group yet, and the host polls meanwhile: its stack shows the call, and the other rank stays away."""
    job = watch("absent", env={**BLOCK, "SIMULATED_CONNECT": connect})
    assert job.wait(LIMIT_S) == STOPPED, job.stderr()
    (incident,) = incidents(state)
    verdict = incident.verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (1,), (0,))
    assert lines_of(incident) == ["time.sleep(10000)", "dist.all_reduce(x)"]


def test_a_gather_is_no_mismatch(watch: Watch, state: Path) -> None:
    """One rank gives no outputs to it."""
    job = watch("gather", env=BLOCK)
    assert job.wait(LIMIT_S) == 0, job.stderr()
    assert incidents(state) == []


def test_a_rank_that_loads_is_slow_and_does_not_hang(watch: Watch, state: Path, tmp_path: Path) -> None:
    """It reads and decodes for longer than the patience while the others' operations are in flight: a warning, and no more."""
    loaded = tmp_path / "loaded"
    job = watch("loads", "600", str(loaded), env=SPIN)
    wait_for(lambda: incidents(state) or job.process.poll() is not None, LIMIT_S, "a warning")
    loaded.touch()
    assert job.wait(LIMIT_S) == 0, job.stderr()
    assert [(i.verdict.kind, i.verdict.culprit_ranks) for i in incidents(state)] == [("straggler", (1,))]


def test_the_verdict_comes_before_torchs_own_time_limit(
    watch: Watch, jobs: JobRunner, state: Path, tmp_path: Path
) -> None:
    """Its bundle is complete by then, call sites among it: what torch ends, nobody can ask any more. Its dumps say the same."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    torch_dumps = {
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(dumps / "nccl_trace_rank_"),
    }
    job = watch("sleeps", TORCH_LIMIT_S, env={**BLOCK, **torch_dumps}, on_hang="report")
    written = job.wait_for_output(HANGS, LIMIT_S)
    assert written.index("STALL, not proven") < written.index(HANGS)
    (incident,) = incidents(state)
    assert (incident.verdict.kind, incident.verdict.culprit_ranks) == ("stall", (1,))
    assert incident.captured["call_sites"]

    wait_for(
        lambda: [is_whole(dumps / f"nccl_trace_rank_{rank}") for rank in (0, 1)] == [True, True], LIMIT_S, "its dumps"
    )
    diagnosed = jobs.hangwatch("diagnose", dumps, "--json")
    assert diagnosed.wait() == 1, diagnosed.stderr()
    later = msgspec.json.decode(diagnosed.stdout(), type=Incident).verdict
    assert (later.kind, later.culprit_ranks, later.waiting_ranks) == ("stall", (1,), (0,))
    assert later.collective == incident.verdict.collective


def test_what_torchs_watchdog_aborts_is_named_from_its_dumps(
    nccl: Path, jobs: JobRunner, state: Path, tmp_path: Path
) -> None:
    """Where the time limit comes before our patience: the ranks' dumps, which torch writes to its own place, differ."""
    launcher = [nccl, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment: dict[str, str | None] = {
        "CUDA_VISIBLE_DEVICES": None, "HANGWATCH_STATE_DIR": str(state), "HOME": str(tmp_path), **BLOCK,
    }  # fmt: skip
    program = [PROGRAMS / "hangs.py", "sizes", "30"]  # of the store, too: one rank may load torch that much faster
    job = jobs.hangwatch("run", "--stall-after", "3600", "--", *launcher, *program, env=environment)
    assert job.wait(LIMIT_S) == 1, job.stderr()
    (incident,) = incidents(state)
    verdict = incident.verdict
    assert verdict.cause is not None
    assert (verdict.kind, verdict.culprit_ranks, verdict.cause.id) == ("failed", (0, 1), "shape-mismatch")
    assert lines_of(incident) == ["dist.all_reduce(x[: 1000 - rank])"] * 2


@pytest.mark.waits
def test_a_driver_that_hangs_is_told_before_torchs_heartbeat_ends_the_rank(watch: Watch, state: Path) -> None:
    """Torch's watchdog hangs in the same driver, which its heartbeat monitor reports at last."""
    limits = {"SIMULATED_BLOCKS": "1:40", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": TORCH_LIMIT_S}
    job = watch("trains", env={**BLOCK, **limits}, on_hang="report")
    written = job.wait_for_output(STUCK, LIMIT_S)
    assert written.index("STALL, not proven") < written.index(STUCK)
    (incident,) = incidents(state)
    verdict = incident.verdict
    assert verdict.cause is not None
    assert (verdict.culprit_ranks, verdict.waiting_ranks, verdict.cause.id) == ((1,), (0,), "device-hangs")


@pytest.mark.soak  # of Gloo in test_e2e_dump.py
def test_native_stacks_of_a_device_that_stops(nccl: Path, jobs: JobRunner, state: Path) -> None:
    """All have joined, and nothing moves: the threads of torch and of the device are shown, of both ranks as one."""
    launcher = [nccl, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": None, **BLOCK, "SIMULATED_STOPS": "1:3"}
    job = jobs.start([*launcher, PROGRAMS / "waiting.py", "steady", "600"], environment)
    job.wait_for_output("rank 0: has launched it")
    job.wait_for_output("rank 1: has launched it")
    dump = jobs.hangwatch("dump", "--native-stacks", "--pid", str(job.pid), "--json", "--state-dir", state)
    assert dump.wait() in {0, 1}, dump.stderr()
    incident = msgspec.json.decode(dump.stdout(), type=Incident)
    assert incident.captured["native_stacks"], incident.missing
    (shown,) = (path.read_text() for path in state.glob("incidents/*/native_stacks.txt"))
    assert "cudaStreamSynchronize (libcudart.so.13)" in shown
    threads = shown.split("\n[")
    (watchdog,) = [one for one in threads if "thread pt_nccl_watchdg" in one]
    assert watchdog.startswith("0-1] 2 ranks\n")
    assert "c10d::ProcessGroupNCCL::Watchdog::runLoop() (libtorch_cuda.so)" in watchdog
