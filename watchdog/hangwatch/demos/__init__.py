"""The demo scenarios: small real programs, each with one bug, and the verdict that hangwatch must reach.

This module is the table; the programs next to it are run as scripts and never imported. It imports msgspec only. The
programs communicate over loopback, need no download, and would hang until Gloo's timeout of 30 minutes unless they are
stopped or ``ends_itself`` is set.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

#: Environment of every scenario: loopback, one thread per process, no network access, little log output.
ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TRANSFORMERS_VERBOSITY": "error",
    }
)

Launcher = Literal["torchrun", "plain"]
ExpectedKind = Literal["deadlock", "stall", "rank_lost", "straggler", "healthy"]


class Scenario(msgspec.Struct, frozen=True):
    """One demo: a program, how it is started, and the expected verdict.

    ``kind``, ``culprits`` (global ranks) and ``cause`` (the id of the first cause) are the expected incident; ``cause`` None
    means no incident. ``needs`` are the distributions that must be installed. ``ends_itself``: the program finishes with
    status 0.
    """

    name: str
    description: str
    file: str
    nproc: int
    kind: ExpectedKind
    cause: str | None
    culprits: tuple[int, ...]
    launcher: Launcher = "torchrun"
    needs: tuple[str, ...] = ("torch",)
    ends_itself: bool = False

    @property
    def path(self) -> Path:
        """The program's file."""
        return Path(__file__).parent / self.file

    def command(self, python: str = sys.executable) -> tuple[str, ...]:
        """Return the command that starts it.

        ``python``: the interpreter of an environment with the distributions in ``needs``.
        """
        launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.nproc))
        return (python, *(launch if self.launcher == "torchrun" else ()), str(self.path))

    def full_environment(self) -> dict[str, str]:
        """Return the variables to add to the environment it is started in."""
        return dict(ENVIRONMENT)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="tuple-labels",
        description="Hugging Face Trainer: evaluation gathers a tuple of labels whose length differs between ranks",
        file="tuple_labels.py",
        nproc=2,
        kind="deadlock",
        cause="tuple-labels-gather",
        culprits=(1,),
        needs=("torch", "transformers", "accelerate"),
    ),
    Scenario(
        name="rank-conditional",
        description="a metric is averaged over all ranks, but only under `if rank == 0`",
        file="rank_conditional.py",
        nproc=3,
        kind="deadlock",
        cause="ranks-diverged",
        culprits=(0,),
    ),
    Scenario(
        name="checkpoint-on-rank0",
        description="FSDP: only rank 0 saves a checkpoint, but gathering the full state dict needs every rank",
        file="checkpoint_on_rank0.py",
        nproc=3,
        kind="deadlock",
        cause="checkpoint-on-some-ranks",
        culprits=(0,),
    ),
    Scenario(
        name="uneven-inputs",
        description="DDP: one rank has fewer batches and finishes its epoch while the others continue to train",
        file="uneven_inputs.py",
        nproc=3,
        kind="deadlock",
        cause="ranks-diverged",
        culprits=(2,),
    ),
    Scenario(
        name="group-order",
        description="two ranks use two process groups in opposite order",
        file="group_order.py",
        nproc=2,
        kind="deadlock",
        cause="group-order-inversion",
        culprits=(0, 1),
    ),
    Scenario(
        name="early-exit",
        description="one rank leaves the training loop early; a thread keeps its process alive",
        file="early_exit.py",
        nproc=2,
        kind="stall",
        cause="early-exit",
        culprits=(1,),
    ),
    Scenario(
        name="rank-killed",
        description="a rank is killed without a launcher to stop the others, which wait for it in new_group",
        file="rank_killed.py",
        launcher="plain",
        nproc=3,
        kind="rank_lost",
        cause="rank-died",
        culprits=(2,),
    ),
    Scenario(
        name="stopped-rank",
        description="a rank's process is stopped (SIGSTOP)",
        file="stopped_rank.py",
        nproc=2,
        kind="stall",
        cause="rank-stopped",
        culprits=(1,),
    ),
    Scenario(
        name="blocked-io",
        description="a rank is blocked reading a file that never returns data",
        file="blocked_io.py",
        nproc=2,
        kind="stall",
        cause="blocked-io",
        culprits=(1,),
    ),
    Scenario(
        name="dataloader",
        description="a DataLoader worker of one rank is stuck reading a file",
        file="dataloader.py",
        nproc=2,
        kind="stall",
        cause="dataloader-stall",
        culprits=(1,),
    ),
    Scenario(
        name="slow",
        description="healthy: one rank takes 1.5 s per step (finishes after 15 s)",
        file="slow.py",
        nproc=2,
        kind="healthy",
        cause=None,
        culprits=(),
        ends_itself=True,
    ),
    Scenario(
        name="rank0-work",
        description="healthy: rank 0 works for 12 s while the others wait at a barrier (at most a warning)",
        file="rank0_work.py",
        nproc=3,
        kind="straggler",
        cause="rank0-work",
        culprits=(0,),
        ends_itself=True,
    ),
)

#: The scenario that ``hangwatch demo`` runs by default.
DEFAULT = SCENARIOS[0]


def find_scenario(name: str) -> Scenario | None:
    """Return the scenario of that name; None if there is none."""
    return next((scenario for scenario in SCENARIOS if scenario.name == name), None)
