"""The whole node at a glance, for commands that are no agent: every job, with the beats of whatever run directory it uses."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.sources.beats import BeatReader
from hangwatch.sources.discovery import Discovery, find_ranks


class MergedReader:
    """Reads the beats of several run directories as if they were one."""

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self._readers = tuple(BeatReader(d) for d in directories)

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """All beats by pid, and what could not be read."""
        beats: dict[int, Beat] = {}
        gaps: list[Gap] = []
        for reader in self._readers:
            found, missed = reader.read()
            beats |= found
            gaps += missed
        return beats, tuple(gaps)


def run_directories() -> tuple[Path, ...]:
    """The run directories that processes of this node were started with, by their environment."""
    found: set[Path] = set()
    for process in psutil.process_iter():
        try:
            told = process.environ().get("HANGWATCH_RUN_DIR")
        except (psutil.Error, OSError):
            continue
        if told and _ours(Path(told)):
            found.add(Path(told))
    return tuple(sorted(found))


def _ours(path: Path) -> bool:
    """Whether a directory named in somebody's environment may be read: a real one, its owner's alone."""
    try:
        found = path.lstat()
    except OSError:
        return False
    private = path.is_dir() and not found.st_mode & 0o022 and found.st_uid in {os.getuid(), 0}
    return private or os.getuid() == 0


def look_around() -> tuple[Discovery, MergedReader]:
    """Every job on the node, and a reader for its beats."""
    reader = MergedReader(run_directories())
    beats, gaps = reader.read()
    found = find_ranks(None, beats)
    return Discovery(found.jobs, (*found.gaps, *gaps)), reader
