"""``hangwatch diagnose``, on the dumps alone: no stacks, no agent, no source code of the program.

It prints one verdict; ``--format json`` has the same in fields, of which these are read.

- Culprits: ``culprit_ranks`` (in the text: *because of* ...).
- Cause: the id of the first cause, whatever its share; ``unknown`` is none.
- Lines: that of the culprits and that of the others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from comparing.reading import Output, Reading, Tool, failure


def command(folder: Path) -> list[str]:
    """As documented."""
    return [str(Path(sys.executable).with_name("hangwatch")), "diagnose", str(folder), "--format", "json"]


def read(output: Output) -> Reading:
    """See above. Exit status 0 (no hang) and 2 (no usable data) come without a verdict."""
    error = failure(output)
    if output.status != 1 or error is not None:
        return Reading(error=error)
    verdict = json.loads(output.stdout)["verdict"]
    divergence, cause = verdict["divergence"] or {}, verdict["cause"] or {}
    sides = [side for name in ("culprit", "others") if (side := divergence.get(name)) is not None]
    lines = tuple((side["file"], side["line"]) for side in sides)
    named = cause.get("id")
    return Reading(tuple(verdict["culprit_ranks"]), None if named == "unknown" else named, lines)


TOOL = Tool("hangwatch diagnose", command, read)
