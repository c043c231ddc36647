"""The beats of probed ranks: files ``RUN_DIR/ranks/PID.beat``, replaced whole every half second.

May import hangwatch.model, msgspec and the standard library. Read every second for every rank, so a file that has not
changed is not decoded again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hangwatch.model.beats import BEAT_VERSION, Beat
from hangwatch.model.capture import Gap
from hangwatch.sources.proc import read_small, read_stat

_BEAT_LIMIT_BYTES = 4 << 20
_PROBLEM_LIMIT_BYTES = 2000
_Signature = tuple[int, int, int]


class _Version(msgspec.Struct):
    version: int


def parse_beat(data: bytes) -> Beat:
    """Decode one beat file. Raises ``msgspec.MsgspecError`` for a broken one, ``ValueError`` for a newer format."""
    version = msgspec.json.decode(data, type=_Version).version
    if version > BEAT_VERSION:
        raise ValueError(f"is in format {version}, and this version of hangwatch reads up to {BEAT_VERSION}")
    return msgspec.json.decode(data, type=Beat)


class BeatReader:
    """Reads the beats of one run directory, again and again."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "ranks"
        self._seen: dict[str, tuple[_Signature, Beat | Gap]] = {}

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """The last beat of every living rank, by pid, and what could not be read.

        Files of processes that are gone (or whose pid is another process's by now) are left out: a rank that died is
        known by its identity, not by what it once wrote.
        """
        beats: dict[int, Beat] = {}
        gaps: list[Gap] = []
        seen: dict[str, tuple[_Signature, Beat | Gap]] = {}
        for entry in self._entries():
            pid = _pid_of(entry.name)
            stat = None if pid is None else read_stat(pid)
            if pid is None or stat is None:
                continue
            if entry.name.endswith(".problem"):
                gaps.append(_read_problem(entry.path, pid))
                continue
            value = self._value(entry)
            if value is None:
                continue
            seen[entry.name] = value
            if isinstance(value[1], Gap):
                gaps.append(value[1])
            elif value[1].pid == pid and value[1].start_ticks == stat.start_ticks:
                beats[pid] = value[1]
        self._seen = seen
        return beats, tuple(gaps)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Files the probe writes; none where no probe has made the folder yet."""
        try:
            with os.scandir(self._folder) as entries:
                yield from (entry for entry in entries if entry.name.endswith((".beat", ".problem")))
        except OSError:
            return

    def _value(self, entry: os.DirEntry[str]) -> tuple[_Signature, Beat | Gap] | None:
        """What a beat file holds, decoded only when it has changed; None when it vanished meanwhile."""
        try:
            status = entry.stat()
        except OSError:
            return None
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._seen.get(entry.name)
        if known is not None and known[0] == signature:
            return known
        data = read_small(entry.path, _BEAT_LIMIT_BYTES)
        if data is None:
            return signature, Gap(
                "beat", f"{entry.name} cannot be read", hint="run the agent as the job's user or root"
            )
        try:
            return signature, parse_beat(data)
        except (msgspec.MsgspecError, ValueError) as error:
            reason = f"{entry.name} {error}" if str(error).startswith("is in") else f"{entry.name} is broken: {error}"
            return signature, Gap("beat", reason, hint="use the same hangwatch in the job and in the agent")


def _pid_of(name: str) -> int | None:
    """The pid a file is named by."""
    stem = name.split(".", 1)[0]
    return int(stem) if stem.isascii() and stem.isdigit() else None


def _read_problem(path: str, pid: int) -> Gap:
    """What the probe could not do in a living process."""
    text = (read_small(path, _PROBLEM_LIMIT_BYTES) or b"").decode(errors="replace")
    reason = " ".join(text.split()) or "it failed and could not say why"
    return Gap("probe", f"in process {pid}: {reason}")
