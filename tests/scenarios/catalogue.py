"""The catalogue's format, and how it is read. See README.md beside this file for what each field means."""

from __future__ import annotations

import fnmatch
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from hangwatch.demos import ENVIRONMENT
from support import NCCL_PYTHON, find_free_port

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
UNSUPERVISED = HERE / "unsupervised.py"

Launcher = Literal["torchrun", "accelerate", "deepspeed", "spawn", "unsupervised"]
Kind = Literal["deadlock", "stall", "rank_lost", "straggler"]


class Truth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is true of a hang. Lists of alternatives are for what is a matter of timing or of view; ranks never are.

    ``kinds``: what it may be called. ``proven``: whether a proof is there to be had. ``culprits``, ``waiting``: global
    ranks, and names of processes of other worlds (``engine/0``). ``operation``: the names that the pending collective may be
    given, empty where there is none to see. ``group``: its global ranks. ``sequence``: the number of the first operation in
    which the ranks differ. ``cause``: the id. ``culprit_line`` and ``others_line``: a part of the source line on each side
    that occurs once in the program.
    """

    kinds: tuple[Kind, ...]
    proven: bool
    culprits: tuple[int | str, ...]
    cause: str
    waiting: tuple[int | str, ...] | None = None
    operation: tuple[str, ...] = ()
    group: tuple[int, ...] | None = None
    sequence: int | None = None
    culprit_line: str | None = None
    others_line: str | None = None


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is true of a job that is healthy, or fails in a way that is no hang.

    ``status``: the exit status it comes to by itself. ``warning``: whether a ``straggler`` may be reported on the way.
    """

    status: tuple[int, ...] = (0,)
    warning: bool = False


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to start a program, and its truth: exactly one of ``truth`` and ``control``.

    ``gpu``: it needs one. ``simulated``: it runs on NCCL over the simulated device (``tests/device/README.md``), on which a
    host that waits sleeps, unless ``environment`` says ``SIMULATED_SYNC = "spin"``.
    """

    name: str
    describes: str
    ranks: int
    truth: Truth | None = None
    control: Control | None = None
    launcher: Launcher = "torchrun"
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    needs: tuple[str, ...] = ("torch",)
    gpu: bool = False
    simulated: bool = False
    patience_s: float = 6.0
    limit_s: float = 90.0
    issues: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scenario: tuple[Scenario, ...]


class Entry(msgspec.Struct, frozen=True):
    """A scenario and its program."""

    scenario: Scenario
    program: Path

    @property
    def family(self) -> str:
        """The folder it is in."""
        return self.program.parent.name

    def command(self) -> list[str]:
        """The command that starts the job."""
        ranks, program = str(self.scenario.ranks), [str(self.program), *self.scenario.arguments]
        match self.scenario.launcher:
            case "torchrun":
                launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
            case "accelerate":
                # --cpu would start one process only, unless there is MPI. Programs ask for the CPU themselves.
                launch = ["-m", "accelerate.commands.launch", "--multi_gpu"]
                launch += ["--num_processes", ranks, "--num_machines", "1"]
                launch += ["--mixed_precision", "no", "--dynamo_backend", "no"]
                launch += ["--main_process_port", str(find_free_port())]
            case "deepspeed":
                launch = ["-m", "deepspeed.launcher.runner", "--num_gpus", ranks]
                launch += ["--master_port", str(find_free_port())]
            case "spawn":
                launch = []
            case "unsupervised":
                launch = [str(UNSUPERVISED), ranks]
        return [str(self.python), *launch, *program]

    @property
    def python(self) -> Path:
        """The interpreter that its job runs on."""
        return NCCL_PYTHON if self.scenario.simulated else Path(sys.executable)

    def full_environment(self) -> dict[str, str]:
        """What is added to the environment of the job."""
        simulated = {"SIMULATED_SYNC": "block"} if self.scenario.simulated else {}
        return {**ENVIRONMENT, **simulated, **self.scenario.environment}

    def line_of(self, text: str) -> int:
        """The number of the program's one line that contains ``text``. Raises ValueError unless there is just one."""
        lines = [n for n, line in enumerate(self.program.read_text().splitlines(), 1) if text in line]
        if len(lines) != 1:
            raise ValueError(f"{self.program.name}: {len(lines)} lines contain {text!r}")
        return lines[0]


def load_catalogue(patterns: Sequence[str] = ()) -> list[Entry]:
    """All scenarios, or those whose name, ``family/name`` or cause matches one of the shell ``patterns``. Raises ValueError."""
    return [entry for entry in _load_all() if not patterns or any(_matches(entry, pattern) for pattern in patterns)]


@cache  # a second to read, and tests ask for one scenario at a time
def _load_all() -> tuple[Entry, ...]:
    entries = tuple(entry for path in sorted(PROGRAMS.glob("*/*.toml")) for entry in _load_file(path))
    counted = Counter(entry.scenario.name for entry in entries)
    twice = sorted(name for name, times in counted.items() if times > 1)
    if twice:
        raise ValueError(f"names used twice: {', '.join(twice)}")
    return entries


def _matches(entry: Entry, pattern: str) -> bool:
    scenario = entry.scenario
    words = [scenario.name, f"{entry.family}/{scenario.name}", scenario.truth.cause if scenario.truth else "control"]
    return any(fnmatch.fnmatch(word, pattern) for word in words)


def _load_file(path: Path) -> list[Entry]:
    program = path.with_suffix(".py")
    try:
        scenarios = msgspec.toml.decode(path.read_bytes(), type=_File).scenario
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}") from None
    if not program.exists():
        raise ValueError(f"{path}: there is no {program.name} beside it")
    entries = [Entry(scenario, program) for scenario in scenarios]
    for entry in entries:
        truth = entry.scenario.truth
        if (truth is None) == (entry.scenario.control is None):
            raise ValueError(f"{path}: {entry.scenario.name} needs either a truth or a control")
        for text in (truth.culprit_line, truth.others_line) if truth else ():
            if text is not None:
                entry.line_of(text)
    return entries
