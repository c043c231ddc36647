"""A scenario: a program, how it is started, and what is true of it. Pure.

A program ``NAME.py`` has a ``NAME.toml`` beside it with one ``[[scenario]]`` for each way to start it.
"""

from __future__ import annotations

import fnmatch
from typing import Literal

import msgspec

Launcher = Literal["torchrun", "accelerate", "deepspeed", "spawn", "unsupervised"]
Kind = Literal["deadlock", "stall", "rank_lost", "straggler"]


class Truth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is true of a hang. Lists of alternatives are for what is a matter of timing or of view; ranks never are.

    ``kinds``: what it may be called. ``proven``: whether a proof is there to be had. ``culprits``, ``waiting``: global
    ranks, and names of processes of other worlds (``engine/0``). ``operation``: the names that the pending collective may be
    given, empty where there is none to see. ``group``: its global ranks. ``sequence``: the number of the first operation in
    which the ranks differ. ``cause``: the id. ``culprit_side``: where all of the ``culprits`` wait for each other, those of
    them that did what the cause says (took the branch, left the loop first, skipped, saved alone, gathered more), decided
    from the program; None if neither side did more than the other. ``culprit_line`` and ``others_line``: a part of the
    source line on each side that occurs once in the program.
    """

    kinds: tuple[Kind, ...]
    proven: bool
    culprits: tuple[int | str, ...]
    cause: str
    culprit_side: tuple[int, ...] | None = None
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
    """A scenario, the family that it belongs to, and its program: the name of the file, and its text."""

    scenario: Scenario
    family: str
    program: str
    text: str

    @property
    def name(self) -> str:
        """The name of the scenario, which no other has."""
        return self.scenario.name

    @property
    def cause(self) -> str:
        """The id of the true cause, or ``control``."""
        return self.scenario.truth.cause if self.scenario.truth is not None else "control"

    def line_of(self, text: str) -> int:
        """Return the number of the program's one line that contains ``text``. Raises ValueError unless there is just one."""
        lines = [n for n, line in enumerate(self.text.splitlines(), 1) if text in line]
        if len(lines) != 1:
            raise ValueError(f"{self.program}: {len(lines)} lines contain {text!r}")
        return lines[0]

    def matches(self, pattern: str) -> bool:
        """True if the name, ``family/name`` or the cause matches a shell pattern."""
        return any(fnmatch.fnmatch(word, pattern) for word in (self.name, f"{self.family}/{self.name}", self.cause))


def parse_entries(toml: bytes, text: bytes, program: str, family: str) -> list[Entry]:
    """Return the scenarios of a program. Raises ValueError, with the program's name, where they do not fit it."""
    try:
        scenarios = msgspec.toml.decode(toml, type=_File).scenario
    except msgspec.MsgspecError as error:
        raise ValueError(f"{family}/{program}: {error}") from None
    entries = [Entry(_renamed(scenario), family, program, text.decode()) for scenario in scenarios]
    for entry in entries:
        truth = entry.scenario.truth
        if (truth is None) == (entry.scenario.control is None):
            raise ValueError(f"{family}/{program}: {entry.name} needs either a truth or a control")
        for part in (truth.culprit_line, truth.others_line) if truth else ():
            if part is not None:
                entry.line_of(part)
    return entries


def _renamed(scenario: Scenario) -> Scenario:
    """Return the scenario with the id that its cause has now; the file may keep the finer one that it was written with."""
    from hangwatch.causes.knowledge import FORMER  # `choose` marks the rules' branches before they are imported

    truth = scenario.truth
    if truth is None or truth.cause not in FORMER:
        return scenario
    return msgspec.structs.replace(scenario, truth=msgspec.structs.replace(truth, cause=FORMER[truth.cause]))
