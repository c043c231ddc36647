"""Names for processes of other worlds: the role they were started with, or their program.

May import hangwatch.model, ``sources.proc`` and its own parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import PurePosixPath

from hangwatch.model.capture import RankIdentity
from hangwatch.model.numbers import guest_number, world_of
from hangwatch.sources.discovery.launchers import is_python_program, skip_options
from hangwatch.sources.proc.files import node_name

_ROLE = "--role"
#: What a worker of Ray's shows in place of its command line: ``ray::grade``, ``ray::Store.ask``.
_RAY_TITLE = "ray::"


class Roles:
    """Names of worlds. A world keeps its first name; further worlds of a role are numbered: ``engine-2``."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, role: str, number: int) -> str:
        """Return the name of a process's world, by its ``role`` and ``number`` in the job; empty for the job's own world."""
        world = world_of(number)
        if world is None:
            return ""
        if world not in self._names:
            free = (role if count == 1 else f"{role}-{count}" for count in itertools.count(1))
            self._names[world] = next(name for name in free if name not in self._names.values())
        return self._names[world]


def identify_beside(pid: int, start_time: float, arguments: Sequence[str]) -> RankIdentity:
    """Return the identity of a local process that is in no world, named by its role. ``start_time``: Unix time in seconds."""
    node = node_name()
    number = guest_number(f"process {pid} {start_time} {node}", 0)
    return RankIdentity(number, pid, start_time, node, world=f"{read_role(arguments)}[{pid}]")


def read_role(arguments: Sequence[str]) -> str:
    """Return the role in a command line: the value of ``--role``, else its module, script or Ray task, else ``process``."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == _ROLE and (value or place + 1 < len(arguments)):
            return clean_role(value or arguments[place + 1])
    python = bool(arguments) and is_python_program(PurePosixPath(arguments[0]).name)
    rest = skip_options(arguments[1:]) if python else list(arguments)
    if not rest or rest[0] in {"-c", "-"}:
        return "process"
    if rest[0].startswith(_RAY_TITLE):
        return clean_role(rest[0].removeprefix(_RAY_TITLE))
    named = rest[1].rpartition(".")[2] if rest[0] == "-m" and len(rest) > 1 else PurePosixPath(rest[0]).stem
    return clean_role(named)


def clean_role(name: str) -> str:
    """Return a short form of ``name`` that is no number."""
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:32].strip("-.")
    return kept if kept and not kept.isdigit() else "process"
