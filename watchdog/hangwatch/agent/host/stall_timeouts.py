"""The stall timeouts of the jobs that an agent watches, as other commands of its node may read them: they change while it learns.

``STATE_DIR/agents/NODE-PID.json`` is there as long as the agent is. May import the sources and the writer of files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from hangwatch.outputs.bundle.files import encode_line, write_files
from hangwatch.sources.proc.files import node_name, read_stat

log = logging.getLogger("hangwatch")

_FOLDER = "agents"


class StallTimeout(msgspec.Struct, frozen=True):
    """After how many seconds a stall of a job would be reported now, and why that long, in words."""

    after_s: float
    why: str


def write_stall_timeouts(state_dir: Path, jobs: Mapping[str, StallTimeout]) -> None:
    """Replace what this process has written, by job, and remove what agents left that were killed. Never raises."""
    folder = state_dir / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for left in (path for path, living in _files(state_dir) if not living):
            left.unlink(missing_ok=True)
        write_files(folder, [(_own_name(), [encode_line(jobs)])])
    except OSError as error:
        log.debug("stall timeouts cannot be written: %s", error)


def remove_stall_timeouts(state_dir: Path) -> None:
    """Remove what this process has written. Never raises."""
    with suppress(OSError):
        (state_dir / _FOLDER / _own_name()).unlink(missing_ok=True)


def read_stall_timeouts(state_dir: Path) -> dict[str, StallTimeout]:
    """Return what the living agents of this node have written, by job."""
    found: dict[str, StallTimeout] = {}
    for path, living in _files(state_dir):
        if living:
            with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                found |= msgspec.json.decode(path.read_bytes(), type=dict[str, StallTimeout])
    return found


def _own_name() -> str:
    return f"{node_name()}-{os.getpid()}.json"


def _files(state_dir: Path) -> Iterator[tuple[Path, bool]]:
    """Yield what agents of this node have written, and whether each lives."""
    for path in list((state_dir / _FOLDER).glob("*.json")):
        node, _, pid = path.stem.rpartition("-")
        if node == node_name() and pid.isdecimal():
            yield path, read_stat(int(pid)) is not None
