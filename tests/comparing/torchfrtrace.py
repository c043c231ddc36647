"""torchfrtrace, PyTorch's own analyzer (``torch.distributed.flight_recorder.fr_trace``).

It prints a block for each collective that does not match on all ranks, from the earliest on. Of these the first that names
a rank is read: what comes after the first difference is a consequence of it, and matching is less sure from there, as its
source says.

- Culprits: the ranks after ``missing ranks:``, or all of those after ``Culprit rank``. A block without either (sizes of an
  all_to_all) names nobody.
- Cause: the ``Error type`` after ``Culprit rank``, where a cause of ours says the same. That ranks are missing is a symptom
  of many causes.
- Lines: all frames of all blocks (``collective stack trace``). A block shows those of one rank.

``--allow-incomplete-ranks`` changes nothing where all ranks have a dump; without it the tool refuses the others.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from comparing.reading import Output, Reading, Tool, failure
from scenarios.dumping import PREFIX

_BLOCK = re.compile(r"^(?=Not all ranks joining|Collective sequence number: |Input/output mismatch)", re.MULTILINE)
_MISSING = re.compile(r"^missing ranks: \{([\d, ]+)\}", re.MULTILINE)
_CULPRIT = re.compile(r"Culprit rank (\d+); Error type: (\w+)")
_FRAME = re.compile(r"^ ?\S+ at (.+):(\d+)$", re.MULTILINE)
_CAUSES = {
    "COLLECTIVE_TYPE_MISMATCH": "collective-mismatch",
    "SIZE_OR_SYNTAX_MISMATCH": "shape-mismatch",
    "COLLECTIVE_DTYPE_MISMATCH": "dtype-mismatch",
}


def command(folder: Path) -> list[str]:
    """As its documentation has it."""
    return [str(Path(sys.executable).with_name("torchfrtrace")), str(folder), "-p", PREFIX, "--allow-incomplete-ranks"]


def read(output: Output) -> Reading:
    """See above."""
    blocks = _BLOCK.split(output.stdout + output.stderr)[1:]
    named = [block for block in blocks if _MISSING.search(block) or _CULPRIT.search(block)]
    block = (named or blocks or [""])[0]
    lines = tuple(dict.fromkeys((file, int(line)) for text in blocks for file, line in _FRAME.findall(text)))
    if missing := _MISSING.search(block):
        return Reading(tuple(sorted(map(int, missing[1].split(",")))), None, lines, failure(output))
    errors = _CULPRIT.findall(block)
    ranks = tuple(sorted({int(rank) for rank, _ in errors}))
    return Reading(ranks, _CAUSES.get(errors[0][1]) if errors else None, lines, failure(output))


TOOL = Tool("torchfrtrace", command, read)
