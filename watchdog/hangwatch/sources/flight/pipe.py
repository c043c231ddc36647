"""The flight recorder of an NCCL rank without the probe: requested through torch's own pipe, read from the file it writes.

May import hangwatch.model, its own parts and the standard library. ``DumpPipe`` of ``ProcessGroupNCCL.hpp`` and
``DebugInfoWriter`` of ``FlightRecorder.cpp``, torch 2.4 to 2.13: if TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set, rank N
makes the FIFO ``<it>N.pipe`` and checks it each second. A byte in it makes a thread write the whole recorder, with
call sites, to one file of fixed name, while training goes on. The thread needs the GIL for a moment. The store key
that does the same ends the ranks, and is never touched.

Paths are those of the rank's own file system (``/proc/PID/root``). Only FIFOs and plain files of the rank's owner are
opened there, and no links followed: the agent may be root, and everybody may write to the folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.collectives import FlightRecord
from hangwatch.sources.discovery.rank_processes import RankProcess
from hangwatch.sources.flight.pickles import MAX_PICKLE_BYTES, FlightFormatError, load_pickle
from hangwatch.sources.flight.recorder import parse_flight

_SOURCE = "flight recorder"
#: The rank looks every second (TORCH_NCCL_COORD_CHECK_MILSEC), and then has some thousand entries to write.
TIMEOUT_S = 4.0
_POLL_S = 0.1


class Version(msgspec.Struct, frozen=True):
    """Tells one writing of a file from another: at least one value differs."""

    inode: int
    size_bytes: int
    modified_ns: int


def pipe_path(variables: Mapping[str, str], rank: int) -> str | None:
    """Return the FIFO of a rank; None if its environment names none."""
    stem = variables.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
    return f"{stem}{rank}.pipe" if stem else None


def dump_paths(variables: Mapping[str, str], rank: int) -> tuple[str, ...]:
    """Return the files that the rank may write: the one of its environment, else the default of each torch version."""
    named = variables.get("TORCH_FR_DUMP_TEMP_FILE") or variables.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if variables.get("TORCH_FR_DUMP_DYNAMIC_FILE_NAME", "").lower() in {"1", "true", "y", "yes"}:
        return (variables["TORCH_FR_DUMP_TEMP_FILE"],) if variables.get("TORCH_FR_DUMP_TEMP_FILE") else ()
    if named:
        return (f"{named}{rank}",)
    home = variables.get("HOME") or "/tmp"  # noqa: S108 - torch's own default
    cache = variables.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return (
        f"{cache}/torch/comm_lib_trace_rank_{rank}",
        f"{home}/.cache/torch/nccl_trace_rank_{rank}",
        f"/tmp/nccl_trace_rank_{rank}",  # noqa: S108 - torch's own default up to 2.5
    )


async def fetch_by_pipe(
    process: RankProcess, world_size: int | None, timeout_s: float = TIMEOUT_S
) -> FlightRecord | Gap:
    """Return what a rank's recorder holds now, by its pipe; a Gap if it has no pipe or writes nothing in time."""
    rank = process.rank
    pipe = pipe_path(process.variables, rank)
    if pipe is None:
        hint = "start the job with `hangwatch run -- CMD`, or set TORCH_NCCL_DEBUG_INFO_PIPE_FILE and TORCH_FR_DUMP_TEMP_FILE"
        return Gap(_SOURCE, "there is no probe and no pipe to ask for a dump", rank, hint)
    paths = dump_paths(process.variables, rank)
    before = {path: find_version(process, path) for path in paths}
    try:
        ring(process, pipe)
    except OSError as error:
        return Gap(_SOURCE, f"{pipe}: {_reason(error)}", rank)
    deadline_s = time.monotonic() + timeout_s
    failure = "it wrote no dump"
    while time.monotonic() < deadline_s:
        await asyncio.sleep(_POLL_S)
        for path in paths:
            now = find_version(process, path)
            if now is None or now == before[path]:
                continue
            try:
                # It is written in place and at once: a file that is cut now is whole a moment later.
                return parse_flight(
                    _plain(load_pickle(read_dump(process, path))),
                    at_ns=now.modified_ns,
                    source="pickle",
                    world_size=world_size,
                )
            except (FlightFormatError, OSError) as error:
                failure = f"{path}: {error}"
    hint = (
        "set TORCH_NCCL_DUMP_ON_TIMEOUT=1 so that the rank checks every second; a rank whose interpreter "
        "is blocked writes nothing"
    )
    return Gap(_SOURCE, f"asked through the pipe; within {timeout_s:g} s {failure} ({_shown(paths)})", rank, hint)


def read_own_dump(process: RankProcess, since_ns: int, world_size: int | None) -> FlightRecord | None:
    """Return the dump that NCCL's watchdog wrote of a living rank after ``since_ns``; None until there is a whole one."""
    for path in dump_paths(process.variables, process.rank):
        now = find_version(process, path)
        if now is not None and now.modified_ns >= since_ns:
            with contextlib.suppress(FlightFormatError, OSError):
                dump = _plain(load_pickle(read_dump(process, path)))
                return parse_flight(dump, at_ns=now.modified_ns, source="file", world_size=world_size)
    return None


def ring(process: RankProcess, pipe: str) -> None:
    """Write one byte into the rank's FIFO, never waiting.

    Raises OSError if it is no FIFO, not the rank's own, or has no reader.
    """
    descriptor = os.open(_inside(process, pipe), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISFIFO(found.st_mode) or not _owned(process, found.st_uid):
            raise PermissionError(errno.EPERM, "not a FIFO of the rank's own user")
        os.write(descriptor, b"1")
    finally:
        os.close(descriptor)


def find_version(process: RankProcess, path: str) -> Version | None:
    """Return the current version of a plain file of the rank's owner; None if there is none."""
    try:
        found = os.stat(_inside(process, path), follow_symlinks=False)  # noqa: PTH116 - a path of /proc
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or not _owned(process, found.st_uid):
        return None
    return Version(found.st_ino, found.st_size, found.st_mtime_ns)


def read_dump(process: RankProcess, path: str) -> bytes:
    """Return the file's content. Raises OSError, ``FlightFormatError`` if it is too long."""
    descriptor = os.open(_inside(process, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _owned(process, found.st_uid):
            raise PermissionError(errno.EPERM, "not a file of the rank's own user")
        data = file.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise FlightFormatError(f"the dump has more than {MAX_PICKLE_BYTES} bytes")
    return data


def _inside(process: RankProcess, path: str) -> str:
    """Return where we find a path of the rank's file system. ``..`` is refused: below ``/proc/PID/root`` it would leave it."""
    if ".." in PurePosixPath(path).parts:
        raise FileNotFoundError(errno.ENOENT, "a path with .. is not followed")
    return f"/proc/{process.pid}/{'root' if path.startswith('/') else 'cwd/'}{path}"


def _owned(process: RankProcess, uid: int) -> bool:
    return process.uid is not None and uid == process.uid


def _plain(loaded: object) -> Mapping[str, object]:
    if not isinstance(loaded, dict):
        raise FlightFormatError("not a flight-recorder dump")
    return loaded


def _reason(error: OSError) -> str:
    if error.errno == errno.ENXIO:
        return "nobody reads this pipe (the recorder is off, or the group is gone)"
    if error.errno == errno.ENOENT:
        return "this pipe does not exist (the default group does not use NCCL, or does not exist yet)"
    return error.strerror or str(error)


def _shown(paths: Sequence[str]) -> str:
    return (
        paths[0] if len(paths) == 1 else "at torch's default places" if paths else "its name is not in the environment"
    )
