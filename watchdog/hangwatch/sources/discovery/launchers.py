"""Which launcher a command line is. Pure; may import the standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

#: Ours: it is an ancestor of the launcher and is never a rank.
HANGWATCH = "hangwatch"

_PROGRAMS = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "deepspeed.pt": "deepspeed",
    "accelerate-launch": "accelerate",
    "hangwatch": HANGWATCH,
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "mpiexec.hydra": "mpirun",
    "mpirun.real": "mpirun",
    "orterun": "mpirun",
    "prterun": "mpirun",
    "prte": "mpirun",
    "orted": "mpirun",
    "prted": "mpirun",
    "hydra_pmi_proxy": "mpirun",
    "hydra_bstrap_proxy": "mpirun",
    "horovodrun": "mpirun",
    "srun": "srun",
    "slurmstepd": "srun",
}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    "accelerate.commands.launch": "accelerate",
    "hangwatch": HANGWATCH,
}
_SCRIPTS = {
    "torch/distributed/run.py": "torchrun",
    "torch/distributed/launch.py": "torchrun",
    "deepspeed/launcher/runner.py": "deepspeed",
    "deepspeed/launcher/launch.py": "deepspeed",
    "accelerate/commands/launch.py": "accelerate",
    "hangwatch/__main__.py": HANGWATCH,
}
_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def is_python_program(name: str) -> bool:
    """True if a program's file name is a Python interpreter's."""
    return name.startswith(("python", "pypy"))


def skip_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a Python interpreter from its program on: the script, or ``-m``, ``-c`` or ``-``."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in {"-m", "-c", "-"}:
        option = rest.pop(0)
        if option in _OPTIONS_WITH_VALUE and rest:
            rest.pop(0)
    return rest


def read_script(arguments: Sequence[str]) -> str:
    """Return the program of a command line as it stands there: ``src/train.py``, ``pkg.train`` of ``-m``; empty for ``-c``."""
    if not arguments or not is_python_program(PurePosixPath(arguments[0]).name):
        return arguments[0] if arguments else ""
    rest = skip_options(arguments[1:])
    if rest[:1] == ["-m"]:
        return rest[1] if len(rest) > 1 else ""
    return rest[0] if rest and rest[0] not in {"-c", "-"} else ""


def name_launcher(arguments: Sequence[str]) -> str | None:
    """Return the launcher: torchrun, deepspeed, accelerate, mpirun, srun or hangwatch; None for any other command line."""
    if not arguments:
        return None
    program = PurePosixPath(arguments[0].rstrip(":")).name
    rest = list(arguments[1:])
    if is_python_program(program):
        rest = skip_options(rest)
        if not rest or rest[0] in {"-c", "-"}:
            return None
        if rest[0] == "-m":
            module = rest[1] if len(rest) > 1 else ""
            return "accelerate" if module == "accelerate" and "launch" in rest[2:3] else _MODULES.get(module)
        script = PurePosixPath(rest[0])
        named = _SCRIPTS.get("/".join(script.parts[-3:])) or _SCRIPTS.get("/".join(script.parts[-2:]))
        if named is not None:
            return named
        program, rest = script.name, rest[1:]
    if program == "accelerate":
        return "accelerate" if rest[:1] == ["launch"] else None
    # slurmstepd sets its title: "slurmstepd: [123.0]"
    return _PROGRAMS.get(program) or _PROGRAMS.get(program.split(":", 1)[0])
