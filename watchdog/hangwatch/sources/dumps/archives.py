"""Opens packed files without unpacking them to disk: tar, zip, and files compressed with gzip, xz or bzip2.

May import the standard library only. Members are read one at a time and only up to a limit, whatever their headers
say. Their names are labels, never paths. Only regular members count.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple, cast

#: Members are read in steps of this, a tar's own headers at once: longer ones are an attack.
_STEP_BYTES = 1 << 20
#: What opening and reading damaged archives raises, by the standard library's own documents and code.
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, NotImplementedError,
    RuntimeError, OverflowError, IndexError, KeyError, MemoryError,
)  # fmt: skip


class ArchiveError(ValueError):
    """An archive, or a member of one, that cannot be opened; the message is one line for people."""


class ArchiveMember(NamedTuple):
    """One file of an archive: its bytes, or why they cannot be read."""

    name: str
    modified_ns: int | None
    data: bytes
    problem: str = ""


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file by its first bytes; None if it is not compressed."""
    for magic, name in ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd")):
        if head.startswith(magic):
            return name
    return None


def is_zip(head: bytes) -> bool:
    """True for a zip archive, by its first bytes."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """True for an uncompressed tar archive, by its first bytes."""
    return head[257:262] == b"ustar"


def open_compressed(stream: IO[bytes], head: bytes) -> IO[bytes]:
    """Return the decompressed stream; ``stream`` itself if it is not compressed. Raises ``ArchiveError``."""
    kind = compression_of(head)
    if kind == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if kind == "bzip2":
        return bz2.BZ2File(stream)
    if kind == "xz":
        return lzma.LZMAFile(stream)
    if kind == "zstd":
        raise ArchiveError("it is compressed with zstd; unpack it first (zstd -d)")
    return stream


def read_compressed(stream: IO[bytes], head: bytes, limit_bytes: int) -> bytes:
    """Return the whole decompressed content. Raises ``ArchiveError`` if it is damaged or exceeds ``limit_bytes``."""
    try:
        data = open_compressed(stream, head).read(limit_bytes + 1)
    except _DAMAGE as error:
        raise ArchiveError(_say(error)) from None
    if len(data) > limit_bytes:
        raise ArchiveError(f"it has more than {limit_bytes} bytes")
    return data


def read_zip(stream: IO[bytes], limit_bytes: int) -> Iterator[ArchiveMember]:
    """Yield the files of a zip archive. Raises ``ArchiveError`` if it cannot be opened at all."""
    try:
        archive = zipfile.ZipFile(stream)
    except _DAMAGE as error:
        raise ArchiveError(_say(error)) from None
    for info in archive.infolist():
        if info.filename.endswith("/"):  # is_dir() of Python below 3.13 cannot stand an empty name
            continue
        if (info.external_attr >> 28) not in {0, 0o10}:
            yield ArchiveMember(info.filename, None, b"", "it is not a regular file")
            continue
        try:
            with archive.open(info) as opened:
                data = opened.read(limit_bytes + 1)
        except _DAMAGE as error:
            yield ArchiveMember(info.filename, None, b"", _say(error))
            continue
        yield _make_member(info.filename, None, data, limit_bytes)  # zip stores local time without the time zone


def read_tar(stream: IO[bytes], limit_bytes: int) -> Iterator[ArchiveMember]:
    """Yield the files of an uncompressed tar archive, which may be cut off.

    Raises ``ArchiveError`` if it cannot be opened at all, or at the point where it is cut off.
    """
    blocks = _Forward(stream)
    try:
        with tarfile.open(fileobj=blocks, mode="r:") as archive:
            while (info := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                if info.isdir():
                    continue
                if not info.isreg() or info.issparse():
                    yield ArchiveMember(info.name, None, b"", "it is not a regular file")
                    continue
                data = _read_member(archive, info, limit_bytes)
                yield _make_member(info.name, max(0, int(info.mtime * 1e9)) or None, data, limit_bytes)
    except ArchiveError:
        raise
    except _DAMAGE as error:
        raise ArchiveError(_say(error)) from None
    if blocks.last.strip(b"\0"):
        raise ArchiveError("it is truncated: files after the last one may be missing")


def _read_member(archive: tarfile.TarFile, info: tarfile.TarInfo, limit_bytes: int) -> bytes:
    opened = archive.extractfile(info)
    parts: list[bytes] = []
    size = 0
    while opened is not None and size <= limit_bytes and (part := opened.read(_STEP_BYTES)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _make_member(name: str, modified_ns: int | None, data: bytes, limit_bytes: int) -> ArchiveMember:
    if len(data) > limit_bytes:
        return ArchiveMember(name, modified_ns, b"", f"it has more than {limit_bytes} bytes")
    return ArchiveMember(name, modified_ns, data)


def _say(error: BaseException) -> str:
    if isinstance(error, RuntimeError) and "password" in str(error):
        return "it is encrypted"
    return f"it is damaged: {' '.join(str(error).split())[:200] or type(error).__name__}"


class _Forward(io.RawIOBase):
    """A forward-only stream for ``tarfile`` that refuses huge reads, which a bad header may ask for.

    ``last``: the last bytes read; they are zeros if the archive ended as it should.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._at = 0
        self.last = b""

    def readable(self) -> bool:
        """True, always."""
        return True

    def seekable(self) -> bool:
        """True: seeking forward is possible."""
        return True

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """Return ``size`` bytes. Raises ``ArchiveError`` for more than any honest header asks for."""
        if not 0 <= size <= _STEP_BYTES:
            raise ArchiveError("its headers are too large")
        data = self._stream.read(size)
        self._at += len(data)
        self.last = data or self.last
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Skip to ``offset`` and return it. Raises ``ArchiveError`` if that is backward."""
        if whence != 0 or offset < self._at:
            raise ArchiveError("it refers to itself")
        while self._at < offset and self.read(min(_STEP_BYTES, offset - self._at)):
            pass
        return self._at
