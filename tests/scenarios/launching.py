"""How the jobs of scenarios are started."""

from __future__ import annotations

import sys
from pathlib import Path

from corpus.entries import Entry
from hangwatch.demos import ENVIRONMENT
from support import NCCL_PYTHON, find_free_port

HERE = Path(__file__).resolve().parent
UNSUPERVISED = HERE / "unsupervised.py"


def command(entry: Entry, folder: Path) -> list[str]:
    """The command that starts the job; its program lies in the folder (``corpus.catalogue.unpack``)."""
    ranks, program = str(entry.scenario.ranks), [str(folder / entry.program), *entry.scenario.arguments]
    match entry.scenario.launcher:
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
    return [str(python_of(entry)), *launch, *program]


def python_of(entry: Entry) -> Path:
    """The interpreter that its job runs on."""
    return NCCL_PYTHON if entry.scenario.simulated else Path(sys.executable)


def environment_of(entry: Entry) -> dict[str, str]:
    """What is added to the environment of the job."""
    simulated = {"SIMULATED_SYNC": "block"} if entry.scenario.simulated else {}
    return {**ENVIRONMENT, **simulated, **entry.scenario.environment}
