"""Removes secrets from a job's text: command lines, messages, lines of code. Pure; may import the standard library only.

There are three nets, each for what the others miss: secrets of a known form (tokens of known services, keys, JWTs,
passwords in URLs); values after a name that marks them as secret; and the values of such variables of the rank's own
environment, wherever they occur. Code keeps its names: only literals are replaced.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from functools import lru_cache

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
#: Values that are secrets by their form, wherever they are. Forty hexadecimal digits are a key of Weights & Biases, but
#: a revision if they are part of a path.
_SECRET_VALUE = re.compile(
    r"(?:\bhf_[A-Za-z0-9]{8,}|\bapi_org_[A-Za-z0-9]{16,}"
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bxox[a-z]-[\w-]{8,}|\bxapp-[\w-]{8,}|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bnvapi-[\w-]{8,}|\bAIza[\w-]{30,}|\bya29\.[\w-]{16,}"
    r"|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{16,}|\bdapi[0-9a-f]{32}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<![/\w.-])[0-9a-f]{40}(?![/\w]))",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"'{}]+@", re.IGNORECASE)
#: A webhook's path is its password.
_URL_PATH = re.compile(r"(https://(?:hooks\.slack\.com|discord(?:app)?\.com/api/webhooks)/)[^\s\"')]+")
_QUERY_SECRET = re.compile(
    rf"([?&;\s\"'{{,](?:\w+[-_.])*{_SENSITIVE}\w*[\"']?\]?\s*[=:]\s*[\"']?)([^\s&;,\"'}}]+)", re.IGNORECASE
)
#: Not "basic training": the next word must look encoded.
_BEARER = re.compile(
    r"\b(?:([Bb]earer|BEARER)\s+[^\s{}\"'$%<]{4,}|([Bb]asic|BASIC)\s+(?=[a-z+/]*[A-Z0-9=])[A-Za-z0-9+/]{8,}={0,2})"
)
#: In code: a name that marks a secret, and a literal.
_LITERAL = re.compile(r"([A-Za-z_][\w.-]*)([\"']?\]?\s*(?:=|:|,)\s*[rbuRBU]{0,2})([\"'])([^\"'{}]{4,})\3")
#: Names of secrets as flags, but of anything in code.
_PLAIN_NAMES = frozenset({"key", "pw"})
#: Values of the environment: shorter ones are too likely to be words, and a path only says where a secret is.
_LEAST_VALUE_CHARS = 8
_VARIABLES_LIMIT = 64
_LONGEST_COUNT = 7


def _names_secret(name: str) -> bool:
    """True if a flag or variable of this name holds a secret."""
    bare = name.lstrip("-+")
    return bool(_SECRET_NAME.search(bare)) and not _COUNTS.search(bare)


def _hide_shapes(text: str) -> str:
    """Return the text with secrets of a known form replaced."""
    text = _URL_PASSWORD.sub(rf"\1{REDACTED}@", text)
    text = _URL_PATH.sub(rf"\1{REDACTED}", text)
    text = _BEARER.sub(lambda found: f"{found[1] or found[2]} {REDACTED}", text)
    return _SECRET_VALUE.sub(REDACTED, text)


@lru_cache(maxsize=4096)
def redact_text(text: str) -> str:
    """Return a message or an argument with its secrets replaced."""

    def hide(found: re.Match[str]) -> str:  # a small number is a count of tokens
        return found[0] if found[2].isdigit() and len(found[2]) <= _LONGEST_COUNT else found[1] + REDACTED

    return _hide_shapes(_QUERY_SECRET.sub(hide, text))


@lru_cache(maxsize=8192)
def redact_code(text: str) -> str:
    """Return a line of code with secret literals replaced; all else is unchanged.

    A literal is secret by its form, or by the name that it is assigned to.
    """

    def hide(found: re.Match[str]) -> str:
        return (
            f"{found[1]}{found[2]}{found[3]}{REDACTED}{found[3]}"
            if _names_secret(found[1]) and found[1] not in _PLAIN_NAMES
            else found[0]
        )

    return _hide_shapes(_LITERAL.sub(hide, text))


def hide_named(name: str, value: str) -> str:
    """Return the value of a variable; our mark instead if the name says that it is secret."""
    return REDACTED if _names_secret(name) else redact_text(value)


def hide_values(text: str, values: Collection[str]) -> str:
    """Return the text without these values, wherever they are."""
    for value in values:
        if value in text:
            text = text.replace(value, REDACTED)
    return text


def find_secret_values(environ: bytes) -> frozenset[str]:
    """Return values of ``/proc/PID/environ`` that are secret by their variable's name or by their form."""
    found: list[str] = []
    for item in environ.split(b"\0"):
        name, _, value = item.decode(errors="replace").partition("=")
        long = len(value) >= _LEAST_VALUE_CHARS and not value.startswith(("/", "."))
        if long and len(value) < 4096 and (_names_secret(name) or _hide_shapes(value) == REDACTED):
            found.append(value)
        if len(found) >= _VARIABLES_LIMIT:
            break
    return frozenset(found)


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return arguments with values of secret flags (``--token X``, ``--api-key=X``, ``SECRET=X``) and secret forms hidden."""
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
        redacted.append(redact_text(argument))
    return tuple(redacted)


def redact_command(arguments: Sequence[str]) -> str:
    """Return a command line for people: redacted, shell-quoted, on one line, cut at ``MAX_COMMAND_CHARS``."""
    command = " ".join(
        argument if argument == REDACTED else _quote(argument) for argument in redact_arguments(arguments)
    )
    command = " ".join(command.split())
    return command if len(command) <= MAX_COMMAND_CHARS else command[: MAX_COMMAND_CHARS - 1] + "…"


def _quote(argument: str) -> str:
    """Quote for a shell, but leave our own mark readable."""
    return argument if REDACTED in argument and " " not in argument else shlex.quote(argument)
