"""What a training has left behind: logs, event files and states below a path, each read whole.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. Nothing is followed: the
files are complete, of one run or of several. ``training/analysis/runs.py`` tells which belong together.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from hangwatch.model.telemetry import DeepSpeedSettings, LoggedStep
from hangwatch.sources.dumps.archives import ArchiveError, compression_of, open_compressed
from hangwatch.sources.dumps.contents import open_regular
from hangwatch.training.sources.deepspeed_config import (
    DeepSpeedConfigError,
    DeepSpeedWords,
    parse_deepspeed_config,
    parse_deepspeed_words,
)
from hangwatch.training.sources.names import parse_output_name
from hangwatch.training.sources.stream import LogStream
from hangwatch.training.sources.tensorboard import EventStream, masked_crc
from hangwatch.training.sources.trainer_state import parse_trainer_state

#: Names of files that are read in a folder; a file that the user names may be called anything.
_NAMES = re.compile(
    r"(?:\.log|\.out|\.err|\.txt|\.jsonl)(?:\.\d{1,3}|\.gz|\.xz|\.bz2)?$|^(?:nohup|stdout|stderr|output|log)$"
    r"|events\.out\.tfevents\.|^trainer_state\.json$",
    re.IGNORECASE,
)
_CONFIG_NAMES = re.compile(r"(?:^ds|deepspeed|zero).*\.json$", re.IGNORECASE)
_MAX_FILES = 50_000
_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 8 << 20
_STATE_LIMIT_BYTES = 64 << 20
_CONFIG_LIMIT_BYTES = 1 << 18
#: A job that fails says so at the end.
_END_BYTES = 16 << 20

#: Called after every file with the number done and the total.
Progress = Callable[[int, "int | None"], None]


class TrainingFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The steps in one file.

    ``name``: its path below the given one; ``modified_ns``: when it was last written. ``family``: equal for files
    that the ranks of one run wrote, by their names. ``attempt``: counts torchrun's restarts. ``rank``: whose output
    it is, of ``local_ranks`` on its node. ``words``: what DeepSpeed says of itself in it.
    """

    name: str
    modified_ns: int
    steps: tuple[LoggedStep, ...]
    family: str = ""
    attempt: int = 0
    rank: int | None = None
    local_ranks: int | None = None
    words: DeepSpeedWords = DeepSpeedWords()


class Unread(msgspec.Struct, frozen=True):
    """A file that could not be read, and why."""

    name: str
    reason: str


def read_training_files(path: Path, progress: Progress) -> Iterator[TrainingFile | Unread]:
    """Yield all files with logged steps, in order of name. Raises OSError if ``path`` itself cannot be read."""
    if not stat.S_ISDIR(path.stat().st_mode):
        found = _read_file(path, path.name)
        if found is not None:
            yield found
        return
    files = list(_walk(path))
    for number, file in enumerate(files, 1):
        found = _read_file(file, file.relative_to(path).as_posix())
        progress(number, len(files))
        if found is not None:
            yield found


def read_last_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the last lines of all output below a path (or of that file), each with when its file was last written.

    Raises OSError if ``path`` itself cannot be read.
    """
    files = [path] if not stat.S_ISDIR(path.stat().st_mode) else list(_walk(path))
    for file in files:
        try:
            with open_regular(file) as stream:
                status = os.fstat(stream.fileno())
                head = stream.read(512)
                stream.seek(max(0, status.st_size - _END_BYTES) if not compression_of(head) else 0)
                data = open_compressed(stream, head).read(_END_BYTES)
        except (OSError, EOFError, ArchiveError, ValueError):
            continue
        if b"\0" not in data[:512]:
            yield from ((status.st_mtime_ns, line) for line in data.decode("utf-8", "replace").splitlines())


def read_lone_config(path: Path) -> DeepSpeedSettings | None:
    """Return the DeepSpeed configuration in a folder (or beside a log); None unless there is exactly one."""
    folder = path if path.is_dir() else path.parent
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            if not _CONFIG_NAMES.search(file.name) or file.stat().st_size > _CONFIG_LIMIT_BYTES:
                continue
            config = msgspec.json.decode(file.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(config, dict) and isinstance(config.get("zero_optimization"), dict):
            try:
                found.append(parse_deepspeed_config(config, file.name))
            except DeepSpeedConfigError:
                continue
    return found[0] if len(found) == 1 else None


def _walk(folder: Path) -> Iterator[Path]:
    seen = 0
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            seen += 1
            if seen > _MAX_FILES:
                return
            if _NAMES.search(name):
                yield Path(here, name)


def _read_file(file: Path, name: str) -> TrainingFile | Unread | None:
    """Return one file's steps; None if it has none."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            head = stream.read(512)
            stream.seek(0)
            place = parse_output_name(file.as_posix())
            rank = place.rank if place is not None else None
            steps, words = _read_steps(open_compressed(stream, head), name, rank, status.st_mtime_ns)
    except (OSError, EOFError, ArchiveError, ValueError) as error:
        return Unread(name, str(getattr(error, "strerror", None) or error))
    if not any(step.loss is not None for step in steps):
        return None
    return TrainingFile(
        name=name,
        modified_ns=status.st_mtime_ns,
        steps=steps,
        family=place.family if place is not None else "",
        attempt=place.attempt if place is not None else 0,
        rank=rank,
        local_ranks=_count_ranks(file.parent.parent) if place is not None and place.elastic else None,
        words=words,
    )


def _count_ranks(attempt: Path) -> int:
    """Return for how many ranks torchrun made a folder."""
    return sum(1 for name in os.listdir(attempt) if name.isdigit())  # noqa: PTH208


def _read_steps(
    stream: IO[bytes], name: str, rank: int | None, at_ns: int
) -> tuple[tuple[LoggedStep, ...], DeepSpeedWords]:
    """Return a stream's steps; its first bytes tell an event file, a trainer's state, or text."""
    piece = stream.read(_PIECE_BYTES)
    if piece.lstrip()[:1] == b"{" and b'"log_history"' in piece:
        data = piece + stream.read(_STATE_LIMIT_BYTES)
        return parse_trainer_state(data, name, at_ns), DeepSpeedWords()
    events = is_event_file(piece)
    parser = EventStream(name, rank) if events else LogStream(name, rank, sampled=False)
    steps: list[LoggedStep] = []
    head, last = b"", b"\n"
    while piece:
        if not events and len(head) < _HEAD_BYTES:
            head += piece
        steps += parser.feed(piece, at_ns)
        last, piece = piece, stream.read(_PIECE_BYTES)
    if not events and not last.endswith(b"\n"):
        steps += parser.feed(b"\n", at_ns)  # nobody will end the last line any more
    return tuple(steps), parse_deepspeed_words(head)


def is_event_file(data: bytes) -> bool:
    """True if bytes begin with a record framed as by TensorFlow's writer."""
    return len(data) >= 12 and struct.unpack_from("<I", data, 8)[0] == masked_crc(data[:8])
