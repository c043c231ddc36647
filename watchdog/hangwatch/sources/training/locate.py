"""Which files a rank writes that may tell of its training. May import hangwatch.sources' own parts and the standard library.

From its open descriptors: what its standard output and error go to, where that is a file (a shell's ``>``, torchrun's
``--log-dir``), TensorBoard's event files, ``*.log`` and ``*.jsonl``. From its command line and settings: the output
directory of a transformers Trainer, for what is not kept open.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hangwatch.sources.proc.files import read_small, read_whole

_DESCRIPTORS_LIMIT = 2048
_CONFIG_LIMIT_BYTES = 1 << 18
_COMMAND_LIMIT_BYTES = 1 << 16
_WRITING = os.O_WRONLY | os.O_RDWR
_NAMES = re.compile(r"(?:\.log|\.jsonl|\.out|\.err)$|events\.out\.tfevents\.")
_OPTIONS = ("--output_dir", "--output-dir", "--logging_dir", "--logging-dir")
_YAML = re.compile(rb"^(output_dir|logging_dir):[ \t]*[\"']?([^\"'#\r\n]+?)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)


class WrittenFile(NamedTuple):
    """A file that a rank has open for writing. ``emptied``: it was opened so that nothing of before is in it."""

    path: Path
    identity: tuple[int, int]
    emptied: bool


def find_open_files(pid: int) -> Iterator[WrittenFile]:
    """The regular files a process has open for writing and that may tell of training; none where it may not be seen."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = sorted((int(name) for name in os.listdir(folder)), key=int)[:_DESCRIPTORS_LIMIT]  # noqa: PTH208
    except OSError:
        return
    for descriptor in descriptors:
        try:
            path = os.readlink(f"{folder}/{descriptor}")  # noqa: PTH115
            if not path.startswith("/") or (descriptor not in (1, 2) and not _NAMES.search(path)):
                continue
            status = os.stat(f"{folder}/{descriptor}")  # noqa: PTH116
        except OSError:
            continue
        flags = _read_flags(pid, descriptor)
        if stat.S_ISREG(status.st_mode) and flags & _WRITING and not path.endswith(" (deleted)"):
            yield WrittenFile(Path(path), (status.st_dev, status.st_ino), not flags & os.O_APPEND)


def find_directories(pid: int, configured: Iterable[str | None]) -> tuple[Path, ...]:
    """Where a Trainer writes: as its settings say (``configured``), as its command line does, or a YAML file named there."""
    try:
        home = Path(os.readlink(f"/proc/{pid}/cwd"))  # noqa: PTH115
    except OSError:
        return ()
    found = [name for name in configured if name]
    command = read_whole(f"/proc/{pid}/cmdline", _COMMAND_LIMIT_BYTES) or b""
    arguments = [os.fsdecode(word) for word in command.split(b"\0")]
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in _OPTIONS:
            found += [value] if equals else list(arguments[position + 1 : position + 2])
        elif argument.endswith((".yaml", ".yml")):
            data = read_small(str(home / argument), _CONFIG_LIMIT_BYTES) or b""
            found += [name.decode(errors="replace") for _, name in _YAML.findall(data)]
    return tuple(dict.fromkeys(home / name for name in found))


def _read_flags(pid: int, descriptor: int) -> int:
    """How a descriptor was opened; read only where the kernel does not tell."""
    data = read_small(f"/proc/{pid}/fdinfo/{descriptor}", 4096) or b""
    found = re.search(rb"^flags:\s+([0-7]+)", data, re.MULTILINE)
    return int(found.group(1), 8) if found else 0
