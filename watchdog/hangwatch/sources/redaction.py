"""Command lines without their secrets. Pure; may import the standard library only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

REDACTED = "***"
MAX_COMMAND_CHARS = 2000

_SENSITIVE = (
    r"(?:api[-_.]?key|access[-_.]?key|private[-_.]?key|account[-_.]?key"
    r"|secret|token|password|passwd|passphrase|credentials?|auth)"
)
#: A flag or a variable that holds a secret. ``--tokenizer``, ``--max-tokens`` and ``--author`` do not.
_SECRET_NAME = re.compile(
    rf"(?:^|[-_.]){_SENSITIVE}(?:$|[-_.](?:id|key|value|string|env)?$)|^(?:key|pwd|pw)$", re.IGNORECASE
)
_COUNTS = re.compile(
    r"(?:num|max|min|n|eos|bos|pad|unk|mask|special|add|image|video|per|new)[-_.](?:\w+[-_.])*tokens?$", re.IGNORECASE
)
#: Values that are secrets by their own shape, wherever they stand.
_SECRET_VALUE = re.compile(
    r"(?:\bhf_[A-Za-z0-9]{8,}"
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abprs]-[\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\bnvapi-[\w-]{8,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\b[0-9a-f]{40}\b)"
)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_QUERY_SECRET = re.compile(
    rf"([?&;\s\"'{{,](?:\w+[-_.])*{_SENSITIVE}\w*[\"']?\]?\s*[=:]\s*[\"']?)([^\s&;,\"'}}]+)", re.IGNORECASE
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)


def _names_secret(name: str) -> bool:
    """Whether a flag or variable of this name holds a secret."""
    bare = name.lstrip("-+")
    return bool(_SECRET_NAME.search(bare)) and not _COUNTS.search(bare)


def _redact_text(text: str) -> str:
    """One argument, secrets inside it replaced."""
    text = _URL_PASSWORD.sub(rf"\1{REDACTED}@", text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    text = _QUERY_SECRET.sub(rf"\1{REDACTED}", text)
    return _SECRET_VALUE.sub(REDACTED, text)


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments with the values of secret flags (``--token X``, ``--api-key=X``, ``SECRET=X``) and secret shapes hidden."""
    redacted: list[str] = []
    hide_next = False
    for argument in arguments:
        if hide_next and not argument.startswith("--"):
            redacted.append(REDACTED)
            hide_next = False
            continue
        name, separator, value = argument.partition("=")
        hide_next = False
        if separator and value and _names_secret(name):
            redacted.append(f"{name}={REDACTED}")
            continue
        if not separator and argument.startswith("-") and _names_secret(argument):
            hide_next = True
        redacted.append(_redact_text(argument))
    return tuple(redacted)


def redact_command(arguments: Sequence[str]) -> str:
    """A command line for people: redacted, quoted for a shell, on one line, cut at ``MAX_COMMAND_CHARS``."""
    command = " ".join(
        argument if argument == REDACTED else _quote(argument) for argument in redact_arguments(arguments)
    )
    command = " ".join(command.split())
    return command if len(command) <= MAX_COMMAND_CHARS else command[: MAX_COMMAND_CHARS - 1] + "…"


def _quote(argument: str) -> str:
    """Quote for a shell, but leave our own mark readable."""
    return argument if REDACTED in argument and " " not in argument else shlex.quote(argument)
