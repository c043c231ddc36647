"""The files that a path holds, one after the other: a file, a folder with all below it, an archive.

May import hangwatch.sources' own parts, msgspec and the standard library. Only looks: nothing is unpacked to disk, no folder
that is a link is entered, nothing but regular files is opened. What lies in a folder is read where it is decoded
(``read_content``), so that a worker process needs its name alone; what lies in an archive bears its bytes, one at a time.
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
#: What is packed may unpack to this, and to so many times the size of what it is packed in: real dumps to some fifty times.
UNPACKED_FLOOR_BYTES, UNPACKED_FACTOR = 32 << 20, 64
MAX_FILES = 200_000
_PACKED = (".zip", ".tar", ".tgz", ".txz", ".tbz2", ".tar.gz", ".tar.xz", ".tar.bz2")


class Content(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file. ``name`` is its path below what was given, for people; ``modified_ns`` None where not known.

    ``file`` is where it lies by itself (it may be compressed), ``data`` its bytes where it came out of an archive.
    ``packed_bytes``: the size of the file that it was packed in, None where it was not.
    """

    name: str
    modified_ns: int | None = None
    file: str | None = None
    data: bytes | None = None
    packed_bytes: int | None = None


class Aside(msgspec.Struct, frozen=True):
    """A file that is not used, and why. ``foreign``: it was never meant to be, so that it is not missed."""

    name: str
    reason: str
    foreign: bool = False


def find_contents(path: Path) -> Iterator[Content | Aside]:
    """All that ``path`` holds, in order of name: what may be a dump or stacks, and what is none or cannot be opened.

    Raises OSError where ``path`` itself cannot be looked at.
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
    """How many files ``find_contents`` will tell of; None where archives are among them."""
    if not path.is_dir():
        return None
    names = [file.name.lower() for file in _walk(path)]
    return None if any(name.endswith(_PACKED) for name in names) else min(len(names), MAX_FILES)


def read_content(content: Content) -> bytes:
    """The bytes of one file, unpacked where it was compressed. Raises OSError, ``ArchiveError``."""
    if content.data is not None:
        return content.data
    with _open(Path(content.file or "")) as stream:
        limit_bytes = MAX_CONTENT_BYTES if content.packed_bytes is None else unpacked_limit_bytes(content.packed_bytes)
        return read_compressed(stream, _peek(stream), limit_bytes)


def unpacked_limit_bytes(packed_bytes: int) -> int:
    """What a file of an archive of that size may unpack to."""
    return min(MAX_CONTENT_BYTES, UNPACKED_FLOOR_BYTES + UNPACKED_FACTOR * packed_bytes)


def _walk(folder: Path) -> Iterator[Path]:
    """All files below, in order of name, as people count: 2 before 10."""
    for here, folders, files in os.walk(folder):
        folders.sort(key=_natural)
        for name in sorted(files, key=_natural):
            yield Path(here, name)


def _natural(name: str) -> tuple[int, str]:
    return (len(name), name)


def _open(file: Path) -> IO[bytes]:
    """A regular file, for reading: a FIFO or a device would never end. Raises OSError."""
    stream = os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(0, "it is no regular file", str(file))
    return stream


def _peek(stream: IO[bytes]) -> bytes:
    head = stream.read(SNIFF_BYTES)
    stream.seek(0)
    return head


def _look_into(file: Path, name: str, *, given: bool) -> Iterator[Content | Aside]:
    """One file, or the members of an archive. ``given``: the user named this very file.

    Checkpoints of torch are zip archives too: in a folder only what is called so is opened as one.
    """
    try:
        with _open(file) as stream:
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
    """The members of an archive; that it breaks off is said after what it still holds."""
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
    """What is no dump. An empty file may well have been meant to be one: the disk was full, or the writer died."""
    return (
        Aside(name, "neither a flight-recorder dump nor py-spy's stacks", foreign=True)
        if head
        else Aside(name, "it is empty")
    )


def _unpack_member(name: str, member: ArchiveMember, packed_bytes: int) -> Content | Aside:
    """A compressed file within an archive."""
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
