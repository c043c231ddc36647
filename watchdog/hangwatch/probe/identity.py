"""Which process this is: a rank by its environment, a launcher, or a child of a rank. Standard library only."""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH110, PTH119, PTH123

from __future__ import annotations

import os
from typing import Mapping, NamedTuple

#: Set in ``os.environ`` while this process has a default process group; children that inherit it are not probed.
MARKER = "HANGWATCH_PROBE_PID"

_LAUNCHER_SCRIPTS = frozenset(
    {"torchrun", "accelerate", "accelerate-launch", "deepspeed", "ds", "deepspeed.pt", "hangwatch", "horovodrun", "ray"}
)
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "accelerate.commands",
    "deepspeed.launcher",
    "horovod.runner",
    "hangwatch",
)
#: Environment of each launcher: rank, world size, local rank.
_ENVIRONMENTS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


class Identity(NamedTuple):
    """What the environment says of this process; None for what it does not say."""

    rank: int | None
    world_size: int | None
    local_rank: int | None


#: A process that trains by itself.
ALONE = Identity(0, 1, 0)


def read_identity(environment: Mapping[str, str]) -> Identity:
    """Return the identity that the launcher gave.

    ``RANK`` counts alone; other launchers' variables count only in a world of more than one.
    """
    for rank_name, world_name, local_name in _ENVIRONMENTS:
        rank, world = _integer(environment.get(rank_name)), _integer(environment.get(world_name))
        if rank is not None and (rank_name == "RANK" or (world is not None and world > 1)):
            return Identity(rank, world, _integer(environment.get(local_name)))
    return Identity(None, None, None)


def is_child_of_rank(environment: Mapping[str, str]) -> bool:
    """True if a living rank marked this environment: its DataLoader workers and tools inherit the mark.

    A mark of a process that is gone, or our own from before an ``exec``, does not count.
    """
    marker = _integer(environment.get(MARKER))
    return marker is not None and marker != os.getpid() and os.path.exists("/proc/%d" % marker)


def is_launcher(command_line: list[str]) -> bool:
    """True if this command starts ranks rather than being one; many clusters give launchers a RANK too."""
    module, script = _program(command_line)
    if module is not None:
        return any(module == name or module.startswith(name + ".") for name in _LAUNCHER_MODULES)
    return script is not None and os.path.basename(script) in _LAUNCHER_SCRIPTS


def read_command_line() -> list[str]:
    """Return this process's command line from the kernel: ``sys.argv`` is not final while ``python -m`` starts."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def read_start_ticks() -> int:
    """Return when this process started, in clock ticks since boot (field 22 of ``/proc/self/stat``); 0 if unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _program(command_line: list[str]) -> tuple[str | None, str | None]:
    """Return the module (``-m``) or script that a Python command line runs; neither for ``-c`` and standard input."""
    words = iter(command_line[1:])
    for word in words:
        if not word.startswith("-"):
            return None, word
        if word.startswith("--") or word == "-":
            continue
        for position, letter in enumerate(word[1:], 2):
            if letter in "cmWX":
                value = word[position:] or next(words, "")
                if letter == "m":
                    return value, None
                if letter == "c":
                    return None, None
                break
    return None, None


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
