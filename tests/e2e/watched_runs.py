"""Whole runs of ``hangwatch run`` whose outcome several tests ask about: each is run once, for the fixture ``outcome``."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from hangwatch.demos import SCENARIOS, Scenario
from hangwatch.model.incident import Incident
from support import JOBS, Job, JobRunner, is_alive, wait_for

#: The patience of a run, in seconds. Two of the healthy jobs stand still for much longer.
STALL_AFTER_S = 6
#: How long after its report a hang is acted on that is not proven: captures have to agree, which takes more than one.
ACT_AFTER_S = 2
#: The patience where a proof has to come: without it, since no test waits for so long.
NO_PATIENCE_S = 3600
_TIME_LIMIT_S = 150.0
_RAY_STARTED = ("Started a local Ray instance", "Ray runtime started")


@dataclass(frozen=True)
class Watched:
    """A run: the arguments of ``hangwatch`` without its state directory, and the job's environment."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit status, streams, the incidents on disk (oldest first), and the processes it left running."""

    name: str
    status: int
    stdout: str
    stderr: str
    bundles: tuple[Path, ...]
    left: tuple[str, ...]
    folder: Path

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The incident documents."""
        return tuple(read_incident(bundle) for bundle in self.bundles)


def read_incident(bundle: Path) -> Incident:
    """The document of a bundle. It holds what the model says, in its types, and nothing else."""
    data = (bundle / "incident.json").read_bytes()
    incident = msgspec.json.decode(data, type=Incident, strict=True)
    assert msgspec.json.decode(data) == msgspec.json.decode(msgspec.json.encode(incident))
    return incident


def find_bundles(state_dir: Path) -> tuple[Path, ...]:
    """The bundles of a state directory, oldest first."""
    return tuple(sorted(path.parent for path in state_dir.glob("incidents/*/incident.json")))


def listening_ports(pid: int) -> set[int]:
    """The TCP ports that a process listens on."""
    return {c.laddr.port for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def torchrun(script: Path, *arguments: str, nproc: int = 2, max_restarts: int = 0) -> tuple[str, ...]:
    """The command that starts a job program on this node."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc))
    restarts = ("--max-restarts", str(max_restarts)) if max_restarts else ()
    return (*launcher, *restarts, str(script), *arguments)


def _of_scenario(scenario: Scenario) -> Watched:
    patience_s = NO_PATIENCE_S if is_provable(scenario) else STALL_AFTER_S
    options = ("--on-hang", "stop", "--stall-after", str(patience_s), "--act-after", str(ACT_AFTER_S))
    return Watched(scenario.name, ("run", *options, "--", *scenario.command()), scenario.full_environment())


def is_provable(scenario: Scenario) -> bool:
    """Whether a proof is promised."""
    return scenario.kind in {"deadlock", "rank_lost"}


def _of_healthy_job(name: str, *command: str) -> Watched:
    options = ("--on-hang", "stop", "--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    return Watched(name, ("run", *options, "--", *command), {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})


WATCHED = {
    one.name: one
    for one in (
        *(_of_scenario(scenario) for scenario in SCENARIOS),
        _of_healthy_job("all-save", *torchrun(JOBS / "saving.py", "--seconds", "20")),
        _of_healthy_job("even-tuple-labels", *torchrun(JOBS / "tuple_labels_even.py")),
        Watched("demo-slow", ("demo", "slow")),
    )
}


def run_watched(one: Watched, runner: JobRunner, folder: Path) -> Outcome:
    """Run it to its end. ``folder`` becomes its state directory's and its temporary files'."""
    (folder / "tmp").mkdir()
    environment = {**one.environment, "HANGWATCH_STATE_DIR": str(folder / "state"), "TMPDIR": str(folder / "tmp")}
    job = runner.hangwatch(*one.arguments, env=environment)
    status = job.wait(_TIME_LIMIT_S)
    left = [process for process in job.members() if _runs_on(process)]
    return Outcome(
        name=one.name,
        status=status,
        stdout=job.stdout(),
        stderr=job.stderr(),
        bundles=find_bundles(folder / "state"),
        left=tuple(" ".join(command_of(process)) for process in left),
        folder=folder,
    )


def _runs_on(process: psutil.Process) -> bool:
    """Whether a process goes on for longer than it takes to carry out the signal that has ended it."""
    try:
        process.wait(5.0)
    except psutil.TimeoutExpired:
        return is_alive(process)
    except psutil.NoSuchProcess:
        pass
    return False


def command_of(process: psutil.Process) -> list[str]:
    """A process's command line, empty where it is gone."""
    try:
        return process.cmdline()
    except (psutil.Error, OSError):
        return []


def lines_of(text: str) -> list[str]:
    """What we have said ourselves among a job's output."""
    return [line for line in text.splitlines() if line.startswith("hangwatch: ")]


def read_url(url: str) -> str:
    """The text at a URL that hangwatch has printed."""
    with urllib.request.urlopen(url, timeout=60.0) as answer:  # noqa: S310  # it is ours
        text: str = answer.read().decode()
    return text


def captures_total(metrics_url: str) -> float:
    """How often the agent has looked closely at jobs."""
    for line in read_url(metrics_url).splitlines():
        if line.startswith("hangwatch_agent_capture_duration_seconds_count "):
            return float(line.split()[1])
    return 0.0


def assert_has_the_verdict(job: Job, summary: str, error_file: Path) -> None:
    """Both ranks of ``raising.py`` caught it and cleaned up to the end, and torchrun's error file has it as the reason."""
    lines = job.stdout().splitlines()
    for rank in (0, 1):
        (caught,) = [line for line in lines if line.startswith(f"rank {rank} caught: ")]
        assert summary in caught
        assert f"rank {rank} has cleaned up 3" in lines
    reason = error_file.read_text()
    assert "HangDetected" in reason
    assert summary.partition(":")[0] in reason


def start_ray(start: Callable[[], Job]) -> Job:
    """Return the job that ``start`` started, once its Ray has started (``ray.init`` or ``ray start``).

    Ray gives itself 30 s for that (2.60, ray/_private/node.py), too few on a busy machine: then start it again.
    """
    for _ in range(3):
        job = start()
        wait_for(lambda job=job: _ray_started(job) or job.process.poll() is not None, 120.0, "Ray to start")
        if "timed out during startup" not in job.stderr():
            break
    return job


def _ray_started(job: Job) -> bool:
    """Return whether Ray has said that it has started."""
    written = job.stdout() + job.stderr()
    return any(says in written for says in _RAY_STARTED)
