"""What processes of other worlds are called: by the role that they were started with, or by their program.

May import hangwatch.model, ``sources.proc`` and its own parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import PurePosixPath

from hangwatch.model.capture import RankIdentity
from hangwatch.model.numbers import guest_number, world_of
from hangwatch.sources.discovery.launchers import is_python_program
from hangwatch.sources.proc.files import node_name

_ROLE = "--role"
#: What a worker of Ray's shows in place of its command line: ``ray::grade``, ``ray::Store.ask``.
_RAY_TITLE = "ray::"


class Roles:
    """Names of worlds; each keeps the one it got first. Of several with one role, later ones have a number: ``engine-2``."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, role: str, number: int) -> str:
        """The name of a process's world, by its role; ``number`` is its own in the job. Empty for the job's own world."""
        world = world_of(number)
        if world is None:
            return ""
        if world not in self._names:
            free = (role if count == 1 else f"{role}-{count}" for count in itertools.count(1))
            self._names[world] = next(name for name in free if name not in self._names.values())
        return self._names[world]


def identify_beside(pid: int, start_time: float, arguments: Sequence[str]) -> RankIdentity:
    """The identity of a process of this node that is in no world, called by its role. ``start_time``: Unix time in seconds."""
    node = node_name()
    number = guest_number(f"process {pid} {start_time} {node}", 0)
    return RankIdentity(number, pid, start_time, node, world=f"{read_role(arguments)}[{pid}]")


def read_role(arguments: Sequence[str]) -> str:
    """The role that a command line names: the value of ``--role``, else its module, script or task of Ray; else ``process``."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == _ROLE and (value or place + 1 < len(arguments)):
            return clean_role(value or arguments[place + 1])
    rest = list(arguments[1:]) if arguments and is_python_program(PurePosixPath(arguments[0]).name) else list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in {"-m", "-c"}:
        rest.pop(0)
    if not rest or rest[0] == "-c":
        return "process"
    if rest[0].startswith(_RAY_TITLE):
        return clean_role(rest[0].removeprefix(_RAY_TITLE))
    named = rest[1].rpartition(".")[2] if rest[0] == "-m" and len(rest) > 1 else PurePosixPath(rest[0]).stem
    return clean_role(named)


def clean_role(name: str) -> str:
    """A name that is short, and no number."""
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:32].strip("-.")
    return kept if kept and not kept.isdigit() else "process"
