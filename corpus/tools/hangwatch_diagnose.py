"""``hangwatch diagnose``, on the dumps alone: no stacks, no agent, no source code of the program.

It prints one verdict; ``--json`` has the same in fields. A cause counts whatever its share.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from corpus.judging import Answer, answer_of
from corpus.tools.commands import Output, Tool
from hangwatch.model.incident import Incident


def command(folder: Path) -> list[str]:
    """As documented."""
    return [str(Path(sys.executable).with_name("hangwatch")), "diagnose", str(folder), "--json"]


def read(output: Output) -> Answer:
    """Return its verdict. Exit status 0 (no hang) and 2 (no usable data) come without one."""
    if output.status != 1:
        return Answer()
    return answer_of(msgspec.json.decode(output.stdout, type=Incident).verdict)


TOOL = Tool(command, read)
