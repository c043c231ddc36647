"""Reads the settings file, TOML, as ``Settings``; every mistake is named with its place.

May import ``config.settings``, ``config.errors``, msgspec and the standard library. Reading and parsing are separate:
``parse_config`` is pure. Python's TOML reader keeps no line numbers, so a wrong key is looked up again in the text.
In a string of several lines that may fail, and then the message has no line.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangwatch.config.settings import Settings
from hangwatch.model.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SIZE_LIMIT_BYTES = 1 << 20
_TABLE = re.compile(r"\s*\[+\s*(?P<path>[^\]#]+?)\s*\]+\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(?P<path>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_WORD = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")
#: Where msgspec says that something is wrong: ``... - at `$.receivers.webhook[0]` ``.
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_OWN_WORDS = re.compile(r"(?P<key>[a-z_.]+): (?P<reason>.*)", re.DOTALL)


def read_config(path: Path) -> Settings:
    """Return the settings in a file. Raises ``UserError``, one line with the file, the line and the key."""
    try:
        with path.open("rb") as file:
            data = file.read(_SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read the settings file {path}: {error.strerror or error}; name another") from error
    if len(data) > _SIZE_LIMIT_BYTES:
        raise UserError(f"the settings file {path} has more than {_SIZE_LIMIT_BYTES >> 20} MiB: is it the right file?")
    try:
        return parse_config(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8, as TOML has to be") from None
    except ConfigError as error:
        place = f"{path}:{error.line}" if error.line is not None else str(path)
        raise UserError(f"{place}: {error}") from None


def find_place(path: Path, setting: str) -> str:
    """Return where a file sets ``setting`` (``receivers.webhook``): ``FILE:LINE``, the file alone if that is not found."""
    line = find_line(path.read_text("utf-8"), tuple(setting.split(".")))
    return f"{path}:{line}" if line is not None else str(path)


class ConfigError(ValueError):
    """A mistake in a settings file: the text names key and repair; ``line`` counts from 1, None if not found."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def parse_config(text: str) -> Settings:
    """Decode a settings file. Raises ``ConfigError``."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        match = re.match(r"line (\d+),", place)
        raise ConfigError(f"not TOML: {reason}", int(match[1]) if match else len(text.splitlines()) or 1) from None
    unknown = _find_unknown(values, Settings)
    if unknown is not None:
        path, known = unknown
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
        raise ConfigError(f"unknown key {'.'.join(path)}; {hint}", find_line(text, path))
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        match = _PLACE.search(str(error))
        names = tuple(re.findall(r"[\w-]+", re.sub(r"\[[^\]]*\]", "", match["path"]))) if match else ()
        reason = _PLACE.sub("", str(error))
        own = _OWN_WORDS.match(reason)
        if own is not None:  # a section's own check, which knows the key
            names, reason = (*names, *own["key"].split(".")), own["reason"]
        raise ConfigError(f"{'.'.join(names)}: {reason}" if names else reason, find_line(text, names)) from None


def _find_unknown(
    values: Mapping[str, object], shape: type[msgspec.Struct], above: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], list[str]] | None:
    """Return the first key without a field of its name, and the names there are; None if all are known."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    for key, value in values.items():
        if key not in fields:
            return (*above, key), list(fields)
        inner = fields[key]
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            found = _find_unknown(value, inner, (*above, key))
            if found is not None:
                return found
    return None


def find_line(text: str, path: tuple[str, ...]) -> int | None:
    """Return the line (from 1) that sets the key ``path``, else where the innermost table around it begins; or None."""
    table: tuple[str, ...] = ()
    around: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _TABLE.match(line)) is not None:
            table = _names(header["path"])
            if table and table == path[: len(table)]:
                around = number
            if table == path:
                return number
        elif (key := _KEY.match(line)) is not None:
            full = (*table, *_names(key["path"]))
            if full == path:
                return number
            if full == path[: len(full)]:  # an inline table
                around = number
    return around


def _names(path: str) -> tuple[str, ...]:
    return tuple(word.strip("\"'") for word in _WORD.findall(path))
