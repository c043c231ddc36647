"""torchfrtrace, PyTorch's own analyzer (``torch.distributed.flight_recorder.fr_trace``).

It prints a block for each collective that does not match on all ranks, from the earliest on. Of these the first that names
a rank is read: what comes after the first difference is a consequence of it, and matching is less sure from there, as its
source says.

- Culprits: the ranks after ``missing ranks:``, or all of those after ``Culprit rank``. A block without either (sizes of an
  all_to_all) names nobody.
- Cause: the ``Error type`` after ``Culprit rank``, where a cause of ours says the same. That ranks are missing is a symptom
  of many causes.

``--allow-incomplete-ranks`` changes nothing where all ranks have a dump; without it the tool refuses the others.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from corpus.dumps import PREFIX
from corpus.judging import Answer
from corpus.tools.commands import Output, Tool

_BLOCK = re.compile(r"^(?=Not all ranks joining|Collective sequence number: |Input/output mismatch)", re.MULTILINE)
_MISSING = re.compile(r"^missing ranks: \{([\d, ]+)\}", re.MULTILINE)
_CULPRIT = re.compile(r"Culprit rank (\d+); Error type: (\w+)")
_CAUSES = {
    "COLLECTIVE_TYPE_MISMATCH": "collective-mismatch",
    "SIZE_OR_SYNTAX_MISMATCH": "shape-mismatch",
    "COLLECTIVE_DTYPE_MISMATCH": "dtype-mismatch",
}


def command(folder: Path) -> list[str]:
    """As its documentation has it."""
    return [str(Path(sys.executable).with_name("torchfrtrace")), str(folder), "-p", PREFIX, "--allow-incomplete-ranks"]


def read(output: Output) -> Answer:
    """Return what it says, as above."""
    blocks = _BLOCK.split(output.stdout + output.stderr)[1:]
    block = next((block for block in blocks if _MISSING.search(block) or _CULPRIT.search(block)), "")
    if missing := _MISSING.search(block):
        return Answer(tuple(sorted(map(int, missing[1].split(",")))))
    errors = _CULPRIT.findall(block)
    causes = (cause,) if errors and (cause := _CAUSES.get(errors[0][1])) else ()
    return Answer(tuple(sorted({int(rank) for rank, _ in errors})), causes)


TOOL = Tool(command, read)
