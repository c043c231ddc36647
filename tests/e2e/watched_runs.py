"""Whole runs of ``hangwatch run`` whose outcome several tests ask about: each is run once a session, side by side if it may be.

Runs that are measured (a proof is promised within seconds) go one at a time; the others wait for patience or for a
job's own end most of their time and go a few at once.
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from hangwatch.demos import SCENARIOS, Scenario
from hangwatch.model.incident import Incident
from support import JOBS, Job, JobRunner, is_alive, wait_for

#: How many of the unmeasured runs go at once.
_AT_ONCE = 3
#: The patience every run is given, in seconds. Two of the healthy jobs stand still for much longer.
STALL_AFTER_S = 6
_TIME_LIMIT_S = 150.0


@dataclass(frozen=True)
class Watched:
    """A run: the arguments of ``hangwatch`` without its state directory, and the job's environment."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    measured: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit status, streams, the incidents on disk (oldest first), and the processes it left running."""

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


def torchrun(script: Path, *arguments: str, nproc: int = 2) -> tuple[str, ...]:
    """The command that starts a job program on this node."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc))
    return (*launcher, str(script), *arguments)


def _of_scenario(scenario: Scenario) -> Watched:
    options = ("--on-hang", "stop", "--stall-after", str(STALL_AFTER_S))
    return Watched(
        name=scenario.name,
        arguments=("run", *options, "--", *scenario.command()),
        environment=scenario.full_environment(),
        measured=scenario.kind in {"deadlock", "rank_lost"},
    )


def _of_healthy_job(name: str, *command: str) -> Watched:
    options = ("--on-hang", "stop", "--stall-after", str(STALL_AFTER_S))
    return Watched(name, ("run", *options, "--", *command), {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})


_WATCHED = {
    one.name: one
    for one in (
        *(_of_scenario(scenario) for scenario in SCENARIOS),
        _of_healthy_job("all-save", *torchrun(JOBS / "saving.py", "--seconds", "20")),
        _of_healthy_job("even-tuple-labels", *torchrun(JOBS / "tuple_labels_even.py")),
        Watched("demo-slow", ("demo", "slow")),
    )
}


class WatchedRuns:
    """Runs what is asked for and remembers how it ended. ``wanted``: the names that this session will ask for."""

    def __init__(self, folder: Path, wanted: Iterable[str]) -> None:
        self._folder = folder
        self._runner = JobRunner(folder / "jobs")
        self._wanted = [_WATCHED[name] for name in dict.fromkeys(wanted)]
        self._outcomes: dict[str, Outcome] = {}

    def outcome(self, run: str) -> Outcome:
        """How the run of that name ended."""
        if run not in self._outcomes:
            one = _WATCHED[run]
            batch = [one] if one.measured else [other for other in self._wanted if not other.measured]
            self._outcomes |= self._run(batch if one in batch else [one])
        return self._outcomes[run]

    def end(self) -> None:
        """End whatever is still running."""
        self._runner.end_all()

    def _run(self, batch: list[Watched]) -> dict[str, Outcome]:
        waiting, running = list(batch), dict[str, Job]()
        ended: dict[str, Outcome] = {}
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                one = waiting.pop(0)
                running[one.name] = self._start(one)
            name = wait_for(_first_ended(running), _TIME_LIMIT_S, f"one of {sorted(running)} to end", poll_s=0.05)
            ended[name] = self._note(name, running.pop(name))
        return ended

    def _start(self, one: Watched) -> Job:
        home = self._folder / one.name
        (home / "tmp").mkdir(parents=True)
        environment = {**one.environment, "HANGWATCH_STATE_DIR": str(home / "state"), "TMPDIR": str(home / "tmp")}
        return self._runner.hangwatch(*one.arguments, env=environment)

    def _note(self, name: str, job: Job) -> Outcome:
        home = self._folder / name
        left = [process for process in job.members() if _runs_on(process)]
        return Outcome(
            status=job.wait(),
            stdout=job.stdout(),
            stderr=job.stderr(),
            bundles=find_bundles(home / "state"),
            left=tuple(" ".join(command_of(process)) for process in left),
            folder=home,
        )


def _first_ended(running: Mapping[str, Job]) -> Callable[[], str | None]:
    """A condition: the name of a run whose top process has ended."""
    return lambda: next((name for name, job in running.items() if job.process.poll() is not None), None)


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
    with urllib.request.urlopen(url, timeout=10.0) as answer:  # noqa: S310  # it is ours
        text: str = answer.read().decode()
    return text


def captures_total(metrics_url: str) -> float:
    """How often the agent has looked closely at jobs."""
    for line in read_url(metrics_url).splitlines():
        if line.startswith("hangwatch_agent_capture_duration_seconds_count "):
            return float(line.split()[1])
    return 0.0
