"""The analyzer of NVIDIA's resiliency extension (``CollectiveAnalyzer``), without its language model.

It prints a table with a row for each process group in which ranks are missing.

- Culprits: all ranks in the column ``Missing Ranks``, as its own ``_extract_missing_ranks_from_table`` reads it.
- Causes: none. It finds ranks to isolate; what happened on them is left to other modules, which read the job's log.

It is run from a checkout of its repository (the commit is in the Makefile): the release that we pin has no analyzer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from corpus.dumps import PREFIX
from corpus.judging import Answer
from corpus.tools.commands import Output, Tool

_MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"


def command(folder: Path) -> list[str]:
    """With the name that torch gives dumps in place of its own default, and the table on standard output."""
    return [sys.executable, "-m", _MODULE, "--fr-path", str(folder), "--pattern", f"{PREFIX}*", "--emit-stdout"]


def read(output: Output) -> Answer:
    """Return what it says, as above."""
    ranks: set[int] = set()
    in_table = False
    for line in output.stdout.splitlines():
        in_table |= line.startswith("PGID") and "Missing Ranks" in line
        columns = [column.strip() for column in line.split("|")]
        if in_table and len(columns) >= 6:
            ranks |= {int(rank) for rank in columns[-1].split(",") if rank.strip().isdigit()}
    return Answer(tuple(sorted(ranks)))


def tool(checkout: Path) -> Tool:
    """The tool in a checkout of its repository."""
    return Tool(command, read, {"PYTHONPATH": str(checkout / "src")})
