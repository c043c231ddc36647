"""What is packed, opened without unpacking it to disk: tar, zip, and files compressed with gzip, xz or bzip2.

May import the standard library only. Members are read one at a time and no further than asked for, whatever their headers
promise; their names are labels and never paths. Only regular members count.
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

#: What an xz stream may ask for to be unpacked; the strongest preset asks for 65 MiB.
_XZ_MEMORY_BYTES = 128 << 20
#: Members are read in steps of this, a tar's own headers at once: longer ones are an attack.
_STEP_BYTES = 1 << 20
#: What opening and reading damaged archives raises, by the standard library's own documents and code.
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, NotImplementedError,
    RuntimeError, OverflowError, IndexError, KeyError,
)  # fmt: skip


class ArchiveError(ValueError):
    """An archive, or a member of one, that cannot be opened; the message is one line for people."""


class ArchiveMember(NamedTuple):
    """One file of an archive: its bytes, or why they cannot be had."""

    name: str
    modified_ns: int | None
    data: bytes
    problem: str = ""


def compression_of(head: bytes) -> str | None:
    """How a file is compressed, by its first bytes; None where it is not."""
    for magic, name in ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd")):
        if head.startswith(magic):
            return name
    return None


def is_zip(head: bytes) -> bool:
    """Whether this is a zip archive, by its first bytes."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Whether this is a tar archive that is not compressed, by its first bytes."""
    return head[257:262] == b"ustar"


def open_compressed(stream: IO[bytes], head: bytes) -> IO[bytes]:
    """What a compressed stream holds; the stream itself where it is not compressed. Raises ``ArchiveError``."""
    kind = compression_of(head)
    if kind == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if kind == "bzip2":
        return bz2.BZ2File(stream)
    if kind == "xz":
        return io.BufferedReader(_Xz(stream))
    if kind == "zstd":
        raise ArchiveError("it is compressed with zstd; unpack it first (zstd -d)")
    return stream


def read_compressed(stream: IO[bytes], head: bytes, limit_bytes: int) -> bytes:
    """All of a file, unpacked where it is compressed. Raises ``ArchiveError`` where it is damaged or larger than the limit."""
    try:
        data = open_compressed(stream, head).read(limit_bytes + 1)
    except _DAMAGE as error:
        raise ArchiveError(_say(error)) from None
    if len(data) > limit_bytes:
        raise ArchiveError(f"it has more than {limit_bytes} bytes")
    return data


def read_zip(stream: IO[bytes], limit_bytes: int) -> Iterator[ArchiveMember]:
    """The files of a zip archive. Raises ``ArchiveError`` where it cannot be opened at all."""
    try:
        archive = zipfile.ZipFile(stream)
    except _DAMAGE as error:
        raise ArchiveError(_say(error)) from None
    for info in archive.infolist():
        if info.filename.endswith("/"):  # is_dir() of Python below 3.13 cannot stand an empty name
            continue
        if (info.external_attr >> 28) not in {0, 0o10}:
            yield ArchiveMember(info.filename, None, b"", "it is no regular file")
            continue
        try:
            with archive.open(info) as opened:
                data = opened.read(limit_bytes + 1)
        except _DAMAGE as error:
            yield ArchiveMember(info.filename, None, b"", _say(error))
            continue
        yield _make_member(info.filename, None, data, limit_bytes)  # it keeps local time, and not of which place


def read_tar(stream: IO[bytes], limit_bytes: int) -> Iterator[ArchiveMember]:
    """The files of a tar archive that is not compressed any more; it may end too early.

    Raises ``ArchiveError`` where it cannot be opened at all, or where it breaks off.
    """
    blocks = _Forward(stream)
    try:
        with tarfile.open(fileobj=blocks, mode="r:") as archive:
            while (info := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                if info.isdir():
                    continue
                if not info.isreg() or info.issparse():
                    yield ArchiveMember(info.name, None, b"", "it is no regular file")
                    continue
                data = _read_member(archive, info, limit_bytes)
                yield _make_member(info.name, max(0, int(info.mtime * 1e9)) or None, data, limit_bytes)
    except ArchiveError:
        raise
    except _DAMAGE as error:
        raise ArchiveError(_say(error)) from None
    if blocks.last.strip(b"\0"):
        raise ArchiveError("it breaks off: files after the last one may be missing")


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


class _Xz(io.RawIOBase):
    """An xz stream, unpacked with a bound on the memory that it may ask for (``lzma.LZMAFile`` has none)."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """Some more bytes; 0 at the end. Raises lzma.LZMAError, EOFError."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        while True:
            if self._decompressor.eof:
                packed = self._decompressor.unused_data or self._stream.read(io.DEFAULT_BUFFER_SIZE)
                if not packed.strip(b"\0"):  # padding
                    return 0
                self._decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)
            else:
                packed = self._stream.read(io.DEFAULT_BUFFER_SIZE) if self._decompressor.needs_input else b""
                if self._decompressor.needs_input and not packed:
                    raise EOFError("it breaks off")
            plain = self._decompressor.decompress(packed, len(view))
            if plain:
                view[: len(plain)] = plain
                return len(plain)


class _Forward(io.RawIOBase):
    """A stream that ``tarfile`` reads: forward only, and not as much at once as a header may ask for.

    ``last``: what was read last, which is zeros where an archive has ended as it should.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._at = 0
        self.last = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Forward."""
        return True

    def tell(self) -> int:
        """How much was read."""
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """That many bytes. Raises ``ArchiveError`` for more than any honest header has."""
        if not 0 <= size <= _STEP_BYTES:
            raise ArchiveError("its headers are larger than any honest ones")
        data = self._stream.read(size)
        self._at += len(data)
        self.last = data or self.last
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go on to there. Raises ``ArchiveError`` for anything that lies behind."""
        if whence != 0 or offset < self._at:
            raise ArchiveError("it refers back")
        while self._at < offset and self.read(min(_STEP_BYTES, offset - self._at)):
            pass
        return self._at
