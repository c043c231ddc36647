"""NCCL RAS's text report. Pure.

Format: ``rasClientRunComms`` in ``src/ras/client_support.cc``, NCCL 2.24 to 2.30.7. May import hangwatch.model. The
text lists only what is wrong: a healthy communicator has no lines, and of many ranks with one problem only the
outliers are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.hardware.sources.ras.ras_json import RasFormatError
from hangwatch.model.devices import RasProblem, RasReport

_VERSION = re.compile(r"NCCL version (\S+)")
_HEADING = re.compile(r"(?:#\d+-\d+ \((?P<hash>[0-9a-f]+)\) )?(?P<kind>INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)")
_PROCESS = re.compile(r"[Pp]rocess (?P<pid>\d{1,10}) on node (?P<host>[0-9A-Fa-f.:]+)")
_SECTIONS = frozenset({"Errors", "Warnings"})
_LINES_SHOWN = 4


def parse_status_text(data: bytes, address: str) -> RasReport:
    """Return the report's problems. Raises ``RasFormatError`` if it is no report."""
    text = data.decode(errors="replace")
    version = _VERSION.search(text)
    if version is None:
        raise RasFormatError("the report does not start like one of NCCL's")
    problems: list[RasProblem] = []
    heading: re.Match[str] | None = None
    body: list[str] = []
    inside = False
    for line in (*text.splitlines(), ""):
        if line in _SECTIONS:
            inside = True
        if heading is not None and line.startswith("  "):
            body.append(line.strip())
            continue
        if heading is not None:
            problems.append(_problem(heading, body))
            heading, body = None, []
        if inside:
            heading = _HEADING.fullmatch(line)
    if not inside:
        raise RasFormatError("the report ends before its list of errors")
    return RasReport(address, version[1], (), tuple(problems))


def _problem(heading: re.Match[str], body: Sequence[str]) -> RasProblem:
    found = (m for line in body if (m := _PROCESS.search(line)) is not None)
    processes = tuple(dict.fromkeys((m["host"], int(m["pid"])) for m in found))
    more = f"; and {len(body) - _LINES_SHOWN} more lines" if len(body) > _LINES_SHOWN else ""
    whose = f"communicator 0x{heading['hash'].lstrip('0')}: " if heading["hash"] else ""
    return RasProblem(heading["kind"].lower(), whose + "; ".join(body[:_LINES_SHOWN]) + more, processes)
