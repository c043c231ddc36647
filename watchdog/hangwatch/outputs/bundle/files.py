"""Atomic writing of files. Imports nothing from this package."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec


def encode(value: object) -> bytes:
    """Return readable JSON (indent 2). Lone surrogates, as in paths that are not UTF-8, become the text ``\\udcXX``."""
    return msgspec.json.format(encode_line(value), indent=2) + b"\n"


def encode_line(value: object) -> bytes:
    """Return JSON on one line, without a line break."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value


def write_files(folder: Path, contents: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Write all of ``contents`` (name within ``folder``, its parts) or, if one of them fails, none; files are 0600.

    All are staged as temporary files before the first is renamed, so a full disk is detected while nothing has changed.
    They are renamed in the order given; the last one is flushed to disk, then the folder.

    Raises:
        OSError: with the file it happened at.
    """
    staged: list[tuple[Path, Path]] = []
    try:
        for name, parts in contents:
            temporary = folder / f".{name}.{os.getpid()}.tmp"
            staged.append((temporary, folder / name))
            _write(temporary, parts)
        if staged:
            _flush(staged[-1][0])
        while staged:
            temporary, target = staged[0]
            temporary.replace(target)
            staged.pop(0)
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
    with contextlib.suppress(OSError):  # some file systems cannot flush a directory; the files are in place
        _flush(folder)


def _write(file: Path, parts: Iterable[bytes]) -> None:
    # O_NOFOLLOW and O_EXCL: never write through a planted link in a folder that others could write to.
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(parts)
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
