"""What is read of a tool's output, whichever tool it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec


class Output(msgspec.Struct, frozen=True):
    """What a command printed, and its exit status (None: it was ended after ``running.LIMIT_S``)."""

    stdout: str
    stderr: str
    status: int | None


class Reading(msgspec.Struct, frozen=True):
    """What a reader of the output is told.

    ``culprits``: the ranks that it names as those to look at. ``cause``: the id of the cause's page, None where it names none.
    ``lines``: the places in the program that it shows, as (file, line). ``error``: how it failed, None where it did its work.
    """

    culprits: tuple[int, ...] = ()
    cause: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    error: str | None = None


class Tool(msgspec.Struct, frozen=True):
    """A tool: ``command`` gives its command for a folder of dumps, ``read`` what it says. ``environment`` is added."""

    name: str
    command: Callable[[Path], list[str]]
    read: Callable[[Output], Reading]
    environment: Mapping[str, str] = {}


def failure(output: Output) -> str | None:
    """The last line of a traceback, or that the command did not end; None if it did neither."""
    if output.status is None:
        return "did not end"
    if "Traceback (most recent call last)" in output.stderr:
        return output.stderr.strip().splitlines()[-1]
    return None
