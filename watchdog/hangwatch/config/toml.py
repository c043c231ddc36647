"""Reads the settings file, TOML, as ``Settings``; every mistake is named with its key.

May import ``config.settings``, ``config.errors``, msgspec and the standard library. Reading and parsing are separate:
``parse_config`` is pure. Python's TOML reader keeps no line numbers, so a mistake is named by its whole key.
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
#: Where msgspec says that something is wrong: ``... - at `$.receivers.webhook[0]` ``.
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_OWN_WORDS = re.compile(r"(?P<key>[a-z_.]+): (?P<reason>.*)", re.DOTALL)


def read_config(path: Path) -> Settings:
    """Return the settings in a file. Raises ``UserError``, one line with the file and the key."""
    try:
        with path.open("rb") as file:
            data = file.read(_SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read the settings file {path}: {error.strerror or error}; name another") from error
    if len(data) > _SIZE_LIMIT_BYTES:
        raise UserError(f"the settings file {path} has more than {_SIZE_LIMIT_BYTES >> 20} MiB: is it the right file?")
    try:
        return parse_config(data.decode())
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8, as TOML has to be") from None
    except ConfigError as error:
        raise UserError(f"{path}: {error}") from None


class ConfigError(ValueError):
    """A mistake in a settings file: the text names key and repair."""


def parse_config(text: str) -> Settings:
    """Decode a settings file. Raises ``ConfigError``."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
    unknown = _find_unknown(values, Settings)
    if unknown is not None:
        path, known = unknown
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
        raise ConfigError(f"unknown key {'.'.join(path)}; {hint}")
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        match = _PLACE.search(str(error))
        names = tuple(re.findall(r"[\w-]+", re.sub(r"\[[^\]]*\]", "", match["path"]))) if match else ()
        reason = _PLACE.sub("", str(error))
        own = _OWN_WORDS.match(reason)
        if own is not None:  # a section's own check, which knows the key
            names, reason = (*names, *own["key"].split(".")), own["reason"]
        raise ConfigError(f"{'.'.join(names)}: {reason}" if names else reason) from None


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
