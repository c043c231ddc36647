"""How ranks and source files are written for people. Pure; imports nothing of ours.

Analysis, causes and outputs all speak of ranks and lines, and must speak of them in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Below these folders a path names an installed module; what is above them is noise.
_PACKAGE_ROOTS = frozenset({"site-packages", "dist-packages"})


def format_ranks(ranks: Iterable[int]) -> str:
    """Rank sets as STAT and Slurm write them: ``{0, 1, 2, 5}`` is ``0-2,5``; no ranks at all is ``none``."""
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


def short_path(file: str) -> str:
    """A file as people name it: ``torch/x.py`` inside site-packages or the standard library, else two components.

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
