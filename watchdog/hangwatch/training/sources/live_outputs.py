"""What a running job writes about its training: found, followed, and parsed. May import hangwatch.sources.

All of it reads files, which may block for long on a network file system, so it is called from its own thread. Files
are found by a rank's open descriptors: its standard output and error if they are files (a shell's ``>``, torchrun's
``--log-dir``), TensorBoard's event files, ``*.log`` and ``*.jsonl``. For files that are not kept open, the output
directory of a transformers Trainer is found by its command line and settings.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import LoggedStep
from hangwatch.sources.proc.blocking import read_flags
from hangwatch.sources.proc.files import read_arguments, read_link, read_small
from hangwatch.sources.proc.sockets import read_descriptors
from hangwatch.training.sources.follow import Follower
from hangwatch.training.sources.names import parse_output_name
from hangwatch.training.sources.stream import LogStream
from hangwatch.training.sources.tensorboard import EventStream
from hangwatch.training.sources.trainer_state import parse_trainer_state

_CONFIG_LIMIT_BYTES = 1 << 18
_WRITING = os.O_WRONLY | os.O_RDWR
_NAMES = re.compile(r"(?:\.log|\.jsonl|\.out|\.err)$|events\.out\.tfevents\.")
_OPTIONS = ("--output_dir", "--output-dir", "--logging_dir", "--logging-dir")
_YAML = re.compile(rb"^(output_dir|logging_dir):[ \t]*[\"']?([^\"'#\r\n]+?)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)


class WrittenFile(NamedTuple):
    """A file that a rank has open for writing. ``emptied``: opening it removed its earlier content."""

    path: Path
    identity: tuple[int, int]
    emptied: bool


def find_open_files(pid: int) -> Iterator[WrittenFile]:
    """Yield regular files that a process has open for writing and that may tell of training; none if not visible."""
    for descriptor, path in sorted(read_descriptors(pid)):
        if not path.startswith("/") or (descriptor not in (1, 2) and not _NAMES.search(path)):
            continue
        try:
            status = Path(f"/proc/{pid}/fd/{descriptor}").stat()
        except OSError:
            continue
        flags = read_flags(pid, descriptor) or 0
        if stat.S_ISREG(status.st_mode) and flags & _WRITING and not path.endswith(" (deleted)"):
            yield WrittenFile(Path(path), (status.st_dev, status.st_ino), not flags & os.O_APPEND)


def find_directories(pid: int, configured: Iterable[str | None]) -> tuple[Path, ...]:
    """Return the directories to which a Trainer writes.

    Those that its settings (``configured``), its command line, or a YAML file named there give.
    """
    cwd = read_link(f"/proc/{pid}/cwd")
    if cwd is None:
        return ()
    home = Path(cwd)
    found = [name for name in configured if name]
    arguments = read_arguments(pid)
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in _OPTIONS:
            found += [value] if equals else list(arguments[position + 1 : position + 2])
        elif argument.endswith((".yaml", ".yml")):
            data = read_small(str(home / argument), _CONFIG_LIMIT_BYTES) or b""
            found += [name.decode(errors="replace") for _, name in _YAML.findall(data)]
    return tuple(dict.fromkeys(home / name for name in found))


FILES_LIMIT = 256
#: How much of a file is read at once, so that a long backlog does not keep a core busy.
READ_LIMIT_BYTES = 16 << 20
#: How much earlier output is read, its last part: a long series keeps only its last steps anyway.
BACKLOG_LIMIT_BYTES = 64 << 20
_STATE_LIMIT_BYTES = 64 << 20
_SEARCH_PERIOD_S = 5.0
_STATE = "trainer_state.json"
_EVENTS = "events.out.tfevents."


class WatchedRank(NamedTuple):
    """A rank, for the search of its files.

    ``configured``: directories that its settings name; ``probed``: its trainer is read directly, so its checkpoints
    tell nothing new.
    """

    rank: int
    pid: int
    start_time: float
    configured: tuple[str | None, ...] = ()
    probed: bool = False


class _Followed:
    """A followed file and the parser of its content."""

    def __init__(self, path: Path, rank: int | None, start: int) -> None:
        self.path, self.rank = path, rank
        self.follower = Follower(path, start)
        self.stream = self._new_stream()

    def read(self, at_ns: int) -> list[LoggedStep]:
        found: list[LoggedStep] = []
        for fresh, data in self.follower.read_new(READ_LIMIT_BYTES):
            if fresh:
                self.stream = self._new_stream()
            found += self.stream.feed(data, at_ns)
        return found

    def _new_stream(self) -> EventStream | LogStream:
        kind = EventStream if _EVENTS in self.path.name else LogStream
        return kind(str(self.path), self.rank)


class LiveOutputs:
    """The files of one job. ``patterns``: the user's globs (``--log``)."""

    def __init__(self, patterns: tuple[str, ...] = ()) -> None:
        self._patterns = patterns
        self._files: dict[tuple[int, int], _Followed] = {}
        self._states: dict[Path, float] = {}
        self._state_floor: int | None = None
        self._searched_s = -1e9
        self._before = True
        self._gaps: dict[Path, Gap] = {}

    def poll(self, ranks: Iterable[WatchedRank]) -> tuple[list[LoggedStep], tuple[Gap, ...]]:
        """Return the steps written since the last call, and what could not be read. Blocks as long as the files do."""
        now_s, at_ns = time.monotonic(), time.time_ns()
        found: list[LoggedStep] = []
        if now_s - self._searched_s >= _SEARCH_PERIOD_S:
            self._searched_s = now_s
            found += self._search({rank.rank: rank for rank in ranks}, at_ns)
        for followed in self._files.values():
            try:
                found += followed.read(at_ns)
                self._gaps.pop(followed.path, None)
            except OSError as error:
                self._gaps[followed.path] = _unreadable(followed.path, error)
        return found, tuple(self._gaps.values())

    def close(self) -> None:
        """Close all files."""
        for followed in self._files.values():
            followed.follower.close()

    def _search(self, ranks: Mapping[int, WatchedRank], at_ns: int) -> list[LoggedStep]:
        """Find the files that are written now; return the steps of states.

        Earlier content of a file belongs to the job only if the job has emptied the file.
        """
        owners: dict[tuple[int, int], set[int]] = {}
        opened = {}
        for rank in ranks.values():
            for file in find_open_files(rank.pid):
                opened[file.identity] = file
                owners.setdefault(file.identity, set()).add(rank.rank)
        for identity, file in opened.items():
            whose = next(iter(owners[identity])) if len(owners[identity]) == 1 and len(ranks) > 1 else None
            self._follow(identity, file.path, whose, whole=file.emptied or not self._before)
        for path in self._named(ranks.values()):
            try:
                status = path.stat()
            except OSError:
                continue
            begun = min((rank.start_time for rank in ranks.values()), default=0.0)
            whole = not self._before or _made_at(path.name) >= begun - 1 > 0
            place = parse_output_name(str(path))
            whose = place.rank if place is not None and place.rank in ranks else None
            self._follow((status.st_dev, status.st_ino), path, whose, whole=whole)
        found = [step for rank in ranks.values() if not rank.probed for step in self._read_states(rank, at_ns)]
        self._before = False
        return found

    def _follow(self, identity: tuple[int, int], path: Path, rank: int | None, *, whole: bool) -> None:
        if identity in self._files or len(self._files) >= FILES_LIMIT:
            return
        if any(followed.path == path for followed in self._files.values()):
            return  # it was rotated; its follower opens the new file itself
        try:
            size = path.stat().st_size
        except OSError:
            return
        self._files[identity] = _Followed(path, rank, max(0, size - BACKLOG_LIMIT_BYTES) if whole else size)

    def _named(self, ranks: Iterable[WatchedRank]) -> Iterator[Path]:
        """Yield files that the user has named, and files with known names in the ranks' directories."""
        for pattern in self._patterns:
            yield from (Path(path) for path in sorted(glob.glob(pattern, recursive=True))[:FILES_LIMIT])  # noqa: PTH207
        for rank in ranks:
            if rank.probed:
                continue
            for folder in find_directories(rank.pid, rank.configured):
                yield folder / "trainer_log.jsonl"
                yield from sorted(folder.glob(f"{_EVENTS}*"))[-4:]
                yield from sorted(folder.glob(f"runs/*/{_EVENTS}*"))[-4:]

    def _read_states(self, rank: WatchedRank, at_ns: int) -> list[LoggedStep]:
        """Return the steps of the newest ``trainer_state.json``.

        Steps that are also in a checkpoint from before this run are left out.
        """
        states = []
        for folder in find_directories(rank.pid, rank.configured):
            for path in (*folder.glob(_STATE), *folder.glob(f"checkpoint-*/{_STATE}")):
                try:
                    states.append((path.stat().st_mtime, path))
                except OSError:
                    continue
        if self._state_floor is None:
            old = [path for changed, path in sorted(states) if changed < rank.start_time]
            steps = _parse_state(old[-1], at_ns) if old else ()
            self._state_floor = max((step.step or 0 for step in steps), default=0)
        new = sorted(s for s in states if s[0] >= rank.start_time and self._states.get(s[1]) != s[0])
        if not new:
            return []
        self._states.update((path, changed) for changed, path in new)
        return [step for step in _parse_state(new[-1][1], at_ns) if (step.step or 0) > self._state_floor]


def _parse_state(path: Path, at_ns: int) -> tuple[LoggedStep, ...]:
    """Return the steps of one file; none if it is incomplete, too large, or of another kind."""
    try:
        if path.stat().st_size > _STATE_LIMIT_BYTES:
            return ()
        return parse_trainer_state(path.read_bytes(), str(path), at_ns)
    except (OSError, ValueError, RecursionError):
        return ()


def _made_at(name: str) -> float:
    """Return when an event file was made, by its name; 0 for any other name."""
    word = name.partition(_EVENTS)[2].split(".", 1)[0]
    return float(word) if word.isdigit() and len(word) < 12 else 0.0


def _unreadable(path: Path, error: OSError) -> Gap:
    return Gap("log", f"{path} cannot be read: {os.strerror(error.errno or 0)}", hint="run the agent as the job's user")
