"""The files that a path holds: a file, all files below a folder, the members of an archive.

May import hangwatch.sources' own parts, msgspec and the standard library. Nothing is unpacked to disk, no link to a
folder is followed, only regular files are opened. A file in a folder is read where it is decoded (``read_content``),
so that a worker process needs only its path; a member of an archive carries its bytes, one at a time.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from hangwatch.sources.dumps.archives import (
    ArchiveError,
    ArchiveMember,
    compression_of,
    is_tar,
    is_zip,
    open_compressed,
    read_compressed,
    read_tar,
    read_zip,
)
from hangwatch.sources.dumps.decode import SNIFF_BYTES, recognise

#: A dump of 2,000 entries with call sites has about 3 MB. What is larger than this is something else.
MAX_CONTENT_BYTES = 256 << 20
#: The unpacked size may be this, plus so many times the packed size; real dumps unpack to some fifty times.
UNPACKED_FLOOR_BYTES, UNPACKED_FACTOR = 32 << 20, 64
MAX_FILES = 200_000
_PACKED = (".zip", ".tar", ".tgz", ".txz", ".tbz2", ".tar.gz", ".tar.xz", ".tar.bz2")


class Content(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file.

    ``name``: its path below the given one, for people. ``modified_ns``: None if not known. ``file``: its path on disk
    (it may be compressed); ``data``: its bytes if it came out of an archive. ``packed_bytes``: the size of the file
    that it was packed in; None if it was not packed.
    """

    name: str
    modified_ns: int | None = None
    file: str | None = None
    data: bytes | None = None
    packed_bytes: int | None = None


class Aside(msgspec.Struct, frozen=True):
    """A file that is not used, and why. ``foreign``: it was never meant to be used, so nobody misses it."""

    name: str
    reason: str
    foreign: bool = False


def find_contents(path: Path) -> Iterator[Content | Aside]:
    """Yield all files of ``path`` in order of name: possible dumps and stacks, and those set aside with the reason.

    Raises OSError if ``path`` itself cannot be read.
    """
    if not stat.S_ISDIR(path.stat().st_mode):
        yield from _look_into(path, path.name, given=True)
        return
    for number, file in enumerate(_walk(path)):
        if number >= MAX_FILES:
            yield Aside(path.name, f"it holds more than {MAX_FILES} files; the others were not read")
            return
        yield from _look_into(file, file.relative_to(path).as_posix(), given=False)


def count_files(path: Path) -> int | None:
    """Return how many files ``find_contents`` will yield; None if some of them are archives."""
    if not path.is_dir():
        return None
    names = [file.name.lower() for file in _walk(path)]
    return None if any(name.endswith(_PACKED) for name in names) else min(len(names), MAX_FILES)


def read_content(content: Content) -> bytes:
    """Return the decompressed bytes of one file. Raises OSError, ``ArchiveError``."""
    if content.data is not None:
        return content.data
    with open_regular(Path(content.file or "")) as stream:
        limit_bytes = MAX_CONTENT_BYTES if content.packed_bytes is None else unpacked_limit_bytes(content.packed_bytes)
        return read_compressed(stream, _peek(stream), limit_bytes)


def unpacked_limit_bytes(packed_bytes: int) -> int:
    """Return the size up to which a member of an archive of ``packed_bytes`` may unpack."""
    return min(MAX_CONTENT_BYTES, UNPACKED_FLOOR_BYTES + UNPACKED_FACTOR * packed_bytes)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all files below ``folder`` in the order people count: 2 before 10."""
    for here, folders, files in os.walk(folder):
        folders.sort(key=_natural)
        for name in sorted(files, key=_natural):
            yield Path(here, name)


def _natural(name: str) -> tuple[int, str]:
    return (len(name), name)


def open_regular(file: Path) -> IO[bytes]:
    """Return a regular file, open for reading; reading a FIFO or a device might never end. Raises OSError."""
    stream = os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(0, "it is not a regular file", str(file))
    return stream


def _peek(stream: IO[bytes]) -> bytes:
    head = stream.read(SNIFF_BYTES)
    stream.seek(0)
    return head


def _look_into(file: Path, name: str, *, given: bool) -> Iterator[Content | Aside]:
    """Yield one file, or the members of an archive.

    ``given``: the user named this file. A file in a folder is opened as a zip archive only if its name says so:
    torch's checkpoints are zip archives too.
    """
    try:
        with open_regular(file) as stream:
            head = _peek(stream)
            size = os.fstat(stream.fileno()).st_size
            if is_zip(head) and (given or name.lower().endswith(".zip")):
                yield from _members(read_zip(stream, unpacked_limit_bytes(size)), name, size)
                return
            plain = open_compressed(stream, head)
            packed_bytes = size if compression_of(head) else None
            if packed_bytes is not None:
                packed, head = head, plain.read(SNIFF_BYTES)
                stream.seek(0)
                plain = open_compressed(stream, packed)
            if is_tar(head):
                yield from _members(read_tar(plain, unpacked_limit_bytes(size)), name, size)
            elif recognise(head) is None:
                yield _unknown(name, head)
            else:
                yield Content(name, os.fstat(stream.fileno()).st_mtime_ns, str(file), packed_bytes=packed_bytes)
    except OSError as error:
        yield Aside(name, f"it cannot be read: {error.strerror or error}")
    except (ArchiveError, EOFError, ValueError) as error:
        yield Aside(name, str(error) if isinstance(error, ArchiveError) else f"it is damaged: {error}")


def _members(members: Iterator[ArchiveMember], archive: str, packed_bytes: int) -> Iterator[Content | Aside]:
    """Yield the members of an archive; that it is cut off is said after its last whole member."""
    while True:
        try:
            member = next(members, None)
        except ArchiveError as error:
            yield Aside(archive, str(error))
            return
        if member is None:
            return
        name = f"{archive}/{member.name}"
        head = member.data[:SNIFF_BYTES]
        if member.problem:
            yield Aside(name, member.problem)
        elif is_zip(head) or is_tar(head):
            yield Aside(name, "it is an archive within an archive; unpack the outer one first")
        elif compression_of(head):
            yield _unpack_member(name, member, packed_bytes)
        elif recognise(head) is None:
            yield _unknown(name, head)
        else:
            yield Content(name, member.modified_ns, data=member.data, packed_bytes=packed_bytes)


def _unknown(name: str, head: bytes) -> Aside:
    """Return a file that is no dump as set aside. An empty one counts as missing: the disk was full, or its writer died."""
    return (
        Aside(name, "neither a flight-recorder dump nor py-spy's stacks", foreign=True)
        if head
        else Aside(name, "it is empty")
    )


def _unpack_member(name: str, member: ArchiveMember, packed_bytes: int) -> Content | Aside:
    """Return a compressed member of an archive, decompressed; or set aside."""
    try:
        limit_bytes = unpacked_limit_bytes(packed_bytes)
        data = read_compressed(io.BytesIO(member.data), member.data[:SNIFF_BYTES], limit_bytes)
    except ArchiveError as error:
        return Aside(name, str(error))
    if is_tar(data[:SNIFF_BYTES]):
        return Aside(name, "it is an archive within an archive; unpack the outer one first")
    if recognise(data[:SNIFF_BYTES]) is None:
        return _unknown(name, data[:SNIFF_BYTES])
    return Content(name, member.modified_ns, data=data, packed_bytes=packed_bytes)
