"""Lines of source around a place, only of files in an incident's stacks.

The bundle may come from a job that lies about its files, and the reader may be root. So a stack must name the file,
its name must end in ``.py`` after all links, it must be a regular file of ordinary size, and its lines are redacted
like those of a stack.
"""

from __future__ import annotations

import stat
from pathlib import Path

from hangwatch.agent.capturing.redact import secret_values
from hangwatch.assistant.answers import SourceAnswer
from hangwatch.assistant.paging import line
from hangwatch.model.capture import Capture
from hangwatch.model.errors import UserError
from hangwatch.model.incident import Incident
from hangwatch.model.text import short_path
from hangwatch.sources.redaction import hide_values, redact_lines

#: Lines on either side.
MAX_AROUND = 20
_SIZE_LIMIT_BYTES = 4 << 20
_SHOWN = 5

Places = dict[str, set[int]]


def source_around(incident: Incident, capture: Capture, file: str, number: int, around: int) -> SourceAnswer:
    """Return the lines ``number`` - ``around`` to ``number`` + ``around``, each with its number.

    ``file``: the full path, or the short name that verdicts show, if only one file has it. Raises ``UserError``.
    """
    places = places_of(incident, capture)
    path = Path(_find(places, file, incident.id))
    content, changed_ns = _read(path)
    source = redact_lines(content)
    reach = min(max(around, 0), MAX_AROUND)
    first, last = max(number - reach, 1), min(number + reach, len(source))
    if not 1 <= number <= len(source):
        raise UserError(f"{path} has {len(source)} lines; give one of them")
    secrets = sorted(secret_values(rank.identity for rank in capture.ranks), key=len, reverse=True)
    shown = (f"{n}: {hide_values(source[n - 1], secrets)}" for n in range(first, last + 1))
    return SourceAnswer(
        file=line(str(path)),
        lines=tuple(line(one.expandtabs(4)) for one in shown),
        first_line=first,
        total_lines=len(source),
        in_stacks=tuple(sorted(n for n in places[str(path)] if first <= n <= last)),
        changed=changed_ns > capture.at_ns,
    )


def places_of(incident: Incident, capture: Capture) -> Places:
    """Return the files and lines of an incident's stacks, call sites and verdict."""
    found: Places = {}
    stacks = (frame for r in capture.ranks for s in r.stacks for thread in s.threads for frame in thread.frames)
    flights = (rank.flight for rank in capture.ranks if rank.flight is not None)
    sites = (frame for flight in flights for operation in flight.operations for frame in operation.frames or ())
    for frame in (*stacks, *sites):
        found.setdefault(frame.file, set()).add(frame.line)
    divergence = incident.verdict.divergence
    for side in (divergence.culprit, divergence.others) if divergence is not None else ():
        if side is not None:
            found.setdefault(side.file, set()).add(side.line)
    return found


def _find(places: Places, file: str, incident: str) -> str:
    if file in places:
        return file
    alike = sorted(path for path in places if short_path(path) == file or path.endswith(f"/{file}"))
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise UserError(f"{file!r} may be {', '.join(alike[:_SHOWN])}; give the full path")
    raise UserError(f"{file!r} is not in the stacks of {incident}; only files that are can be read")


def _read(path: Path) -> tuple[str, int]:
    """Return the text of a file, and when it was modified last."""
    try:
        where = path.resolve(strict=True)
        status = where.stat()
        if not path.is_absolute() or where.suffix != ".py" or not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is not a Python file on this machine; only these can be read")
        if status.st_size > _SIZE_LIMIT_BYTES:
            raise UserError(f"{path} has more than {_SIZE_LIMIT_BYTES >> 20} MiB; that is no source file")
        return where.read_bytes().decode(errors="replace"), status.st_mtime_ns
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it cannot be resolved"
        raise UserError(f"{path} cannot be read here: {reason}; is this the node that the job ran on?") from None
