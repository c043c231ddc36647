"""How ranks and source files are written for people. Pure; imports nothing of ours.

Analysis, causes and outputs must all use the same words for ranks and lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

#: Below these folders a path names an installed module; what is above them is noise.
_PACKAGE_ROOTS = frozenset({"site-packages", "dist-packages"})
#: Longer rank sets are truncated: a list of 8,192 ranks is useless.
_RANKS_CHARACTERS = 240


def format_ranks(ranks: Iterable[int]) -> str:
    """Return rank sets as STAT and Slurm write them: ``0-2,5`` of ``{0, 1, 2, 5}``; ``none`` without ranks."""
    ordered = sorted(set(ranks))
    parts: list[str] = []
    start = 0
    for index, rank in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == rank + 1:
            continue
        first = ordered[start]
        parts.append(str(rank) if first == rank else f"{first}-{rank}")
        start = index + 1
    return ",".join(parts) or "none"


def short_ranks(ranks: Collection[int]) -> str:
    """Return ``0-2,5``; a long list is truncated and ends with its size."""
    written = format_ranks(ranks)
    if len(written) <= _RANKS_CHARACTERS:
        return written
    return f"{written[:_RANKS_CHARACTERS].rpartition(',')[0]}, ... ({len(ranks)} in all)"


def number_ranks(ranks: Collection[int]) -> str:
    """Return ``rank 3`` or ``ranks 0-2,5``; a truncated list ends with its size."""
    several = "s" if len(ranks) != 1 else ""
    return f"rank{several} {short_ranks(ranks)}"


def ranks_do(ranks: Collection[int], one: str, several: str) -> str:
    """Return the ranks with the verb that fits their number: ``rank 3 waits``, ``ranks 0-2,5 wait``."""
    return f"{number_ranks(ranks)} {one if len(ranks) == 1 else several}"


def format_members(ranks: Sequence[int], limit_chars: int = 40) -> str:
    """Return the ranks of a group, short enough for a name: ``0-3``; ``1-9/4`` of 1, 5, 9; a checksum if too long.

    ``0-9/4`` is every fourth rank from 0 to 9, as in a crontab: groups across nodes or pipeline stages are made so.
    """
    ordered = sorted(set(ranks))
    steps = {b - a for a, b in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1 and (step := steps.pop()) > 1:
        return f"{ordered[0]}-{ordered[-1]}/{step}"
    text = format_ranks(ordered)
    if len(text) <= limit_chars:
        return text
    return f"{ordered[0]}..{ordered[-1]}, {len(ordered)} ranks, {crc32(text.encode()):08x}"


@lru_cache(maxsize=1 << 12)
def short_place(file: str, line: int) -> str:
    """Return ``torch/x.py:12``; the file alone if the line is not known (0), as in native code."""
    return f"{short_path(file)}:{line}" if line else short_path(file)


def short_path(file: str) -> str:
    """Return a file as people name it: ``torch/x.py`` in site-packages or the standard library, else two components.

    Pseudo files (``<string>``, ``<frozen importlib>``) are kept as they are.
    """
    if file.startswith("<"):
        return file
    parts = [part for part in file.split("/") if part]
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] in _PACKAGE_ROOTS:
            return "/".join(parts[index + 1 :])
    for index in range(len(parts) - 2, 0, -1):
        if parts[index - 1] in {"lib", "lib64"} and parts[index].startswith("python3"):
            return "/".join(parts[index + 1 :])
    return "/".join(parts[-2:])


def title_job(id: str, name: str, script: str) -> str:
    """Return what people call a job: its ``name``, else the file name of its ``script``, else its ``id``."""
    return name or script.rpartition("/")[2] or id


def describe_job(launcher: str, world_size: int | None, role: str = "") -> str:
    """Return a job's launcher and size in words.

    ``role``: what its ranks do, in a job with processes of other worlds.
    """
    size = f", {world_size} rank{'s' * (world_size != 1)}" if world_size is not None else ""
    return f"{launcher}{size}{': ' * bool(role)}{role}"
