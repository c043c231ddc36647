"""Tools that are commands: how they are run, and what they leave."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from corpus.judging import Answer

#: They need a second or two.
LIMIT_S = 120.0


class Output(msgspec.Struct, frozen=True):
    """What a command printed, and its exit status (None: it was ended after ``LIMIT_S``)."""

    stdout: str
    stderr: str
    status: int | None


class Tool(msgspec.Struct, frozen=True):
    """A tool: ``command`` gives its command for a folder of dumps, ``read`` what it says. ``environment`` is added."""

    command: Callable[[Path], list[str]]
    read: Callable[[Output], Answer]
    environment: Mapping[str, str] = {}


def run(command: list[str], environment: Mapping[str, str]) -> Output:
    """Return what a command leaves."""
    added = {**os.environ, **environment}
    try:
        done = subprocess.run(command, env=added, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return Output("", "", None)
    return Output(done.stdout, done.stderr, done.returncode)


def failure(output: Output) -> str | None:
    """Return the last line of a traceback, or that the command did not end; None if it did neither."""
    if output.status is None:
        return "did not end"
    if "Traceback (most recent call last)" in output.stderr:
        return output.stderr.strip().splitlines()[-1]
    return None
