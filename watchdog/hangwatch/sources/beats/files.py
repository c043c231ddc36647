"""The beats of probed ranks: files ``RUN_DIR/ranks/PID.beat``, replaced whole every half second.

May import hangwatch.model, msgspec and the standard library. Read every second for every rank, so a file that has not
changed is not decoded again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from hangwatch.model.beats import BEAT_VERSION, Beat
from hangwatch.model.capture import Gap
from hangwatch.sources.proc.files import is_zombie, read_small, read_stat
from hangwatch.sources.redaction import redact_text

_BEAT_LIMIT_BYTES = 4 << 20
_PROBLEM_LIMIT_BYTES = 2000
_Signature = tuple[int, int, int]
#: A process that may have written: its pid as we see it, and its user.
Writer = tuple[int, int]
#: The last beats of processes that are gone, by pid (as we see it) and start, because pids are reused.
LastBeats = dict[tuple[int, int], Beat]


class _Version(msgspec.Struct):
    version: int


def parse_beat(data: bytes) -> Beat:
    """Decode one beat file. Raises ``msgspec.MsgspecError`` for a broken one, ``ValueError`` for a newer format."""
    version = msgspec.json.decode(data, type=_Version).version
    if version > BEAT_VERSION:
        raise ValueError(f"is in format {version}, but this version of hangwatch reads up to {BEAT_VERSION}")
    return msgspec.json.decode(data, type=Beat)


class BeatReader:
    """Reads the beats of one run directory, again and again. ``last``: those of processes that were gone at the last ``read``."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "ranks"
        self._seen: dict[str, tuple[_Signature, Beat | Gap]] = {}
        self.last: LastBeats = {}

    def read(self, writers: Mapping[int, Writer] | None = None) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """Return the last beat of every living rank by its pid, and gaps for what could not be read.

        A file is skipped if its process is gone, or if another process has its pid by now; such beats are in
        ``last``. ``writers`` maps the pid that a process has in its own PID namespace to its pid here and its user: only
        their files are read. Without ``writers`` the two pids are equal, and the folder is ours.
        """
        beats: dict[int, Beat] = {}
        gaps: list[Gap] = []
        seen: dict[str, tuple[_Signature, Beat | Gap]] = {}
        last: LastBeats = {}
        for entry in self._entries():
            inner = _pid_of(entry.name)
            pid, uid = (inner, None) if writers is None or inner is None else writers.get(inner, (None, None))
            process = None if pid is None else read_stat(pid)
            if pid is None or not _is_plain_file(entry, uid):
                continue
            if entry.name.endswith(".problem"):
                if process is not None:
                    gaps.append(_read_problem(entry.path, pid))
                continue
            value = self._value(entry)
            if value is None:
                continue
            seen[entry.name] = value
            found = value[1]
            if isinstance(found, Gap):
                if process is not None:
                    gaps.append(found)
            elif found.pid == inner and process is not None and found.start_ticks == process.start_ticks:
                beats[pid] = found
            elif found.pid == inner:
                last[pid, found.start_ticks] = found
        self._seen, self.last = seen, last
        return beats, tuple(gaps)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the probe's files; none if no probe has made the folder yet."""
        try:
            with os.scandir(self._folder) as entries:
                yield from (entry for entry in entries if entry.name.endswith((".beat", ".problem")))
        except OSError:
            return

    def _value(self, entry: os.DirEntry[str]) -> tuple[_Signature, Beat | Gap] | None:
        """Return a beat file's signature and content, decoded only if it has changed; None if the file vanished."""
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return None
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._seen.get(entry.name)
        if known is not None and known[0] == signature:
            return known
        data = read_small(entry.path, _BEAT_LIMIT_BYTES, os.O_NOFOLLOW | os.O_NONBLOCK)
        if data is None:
            return signature, Gap(
                "heartbeat", f"{entry.name} cannot be read", hint="run the agent as the job's user or root"
            )
        try:
            return signature, parse_beat(data)
        except (msgspec.MsgspecError, ValueError) as error:
            reason = f"{entry.name} {error}" if str(error).startswith("is in") else f"{entry.name} is broken: {error}"
            return signature, Gap(
                "heartbeat", reason, hint="use the same version of hangwatch in the job and in the agent"
            )


def remove_leftovers(run_dir: Path, older_than_s: float = 60.0) -> int:
    """Remove the files that dead processes left in our run directory; return how many. Never raises.

    A killed rank cannot clean up. A process of another PID namespace may write here too, under a pid that is unused
    in ours: so all files of a pid stay if one of them was written within the last ``older_than_s`` seconds.
    """
    by_pid: dict[int, list[os.DirEntry[str]]] = {}
    removed = 0
    try:
        with os.scandir(run_dir / "ranks") as entries:
            for entry in entries:
                if (pid := _pid_of(entry.name)) is not None:
                    by_pid.setdefault(pid, []).append(entry)
    except OSError:
        return 0
    oldest_s = time.time() - older_than_s
    for pid, files in by_pid.items():
        with contextlib.suppress(OSError):
            if _has_ended(pid) and all(one.stat(follow_symlinks=False).st_mtime < oldest_s for one in files):
                for one in files:
                    os.unlink(one.path)  # noqa: PTH108  # a path of scandir's
                    removed += 1
    return removed


def _has_ended(pid: int) -> bool:
    """True if no process has this pid, or only a zombie, which stays until its parent reaps it."""
    process = read_stat(pid)
    return process is None or is_zombie(process)


def _is_plain_file(entry: os.DirEntry[str], uid: int | None) -> bool:
    """True if ``entry`` is a regular file (no link, no FIFO), owned by ``uid`` unless that is None."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and (uid is None or found.st_uid == uid)


def _pid_of(name: str) -> int | None:
    """Return the pid that a file's name begins with; None if there is none."""
    stem = name.split(".", 1)[0]
    return int(stem) if stem.isascii() and stem.isdigit() else None


def _read_problem(path: str, pid: int) -> Gap:
    """Return what the probe could not do in a living process, as a gap."""
    text = (read_small(path, _PROBLEM_LIMIT_BYTES, os.O_NOFOLLOW | os.O_NONBLOCK) or b"").decode(errors="replace")
    reason = redact_text(" ".join(text.split())) or "the probe failed without a reason"
    return Gap("probe", f"in process {pid}: {reason}")
