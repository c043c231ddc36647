"""Whose file it is, by its name, where the content does not tell. Pure; may import the standard library only.

People and tools name dumps as they like: ``nccl_trace_rank_3`` and ``comm_lib_trace_rank_3`` (torch's defaults), ``_dump_3``,
``host_3``, ``rank3/stacks.txt``, ``job-77.r03.json.gz``. A number that is called a rank is one; else it is the number in which
the names differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_ENDINGS = re.compile(
    r"(\.(pkl|pickle|p|json|txt|log|out|bin|dump|trace|fr|gz|xz|bz2|zst|tar|tgz|zip|py-?spy|stacks?))+$", re.IGNORECASE
)
#: ``local_rank`` and ``node_rank`` are numbers of something else.
_CALLED = re.compile(
    r"(?<![a-z])(?<!local[_\-.])(?<!node[_\-.])(?<!group[_\-.])(?:global[_\-.]?)?rank[_\-.=]?0*(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
#: What a number is of that counts within a node, and not over the job.
_WITHIN_NODE = re.compile(
    r"(local[_\-.]?rank|lrank|local|gpu|device|dev|cuda|slot|worker|proc)[_\-.=]?$", re.IGNORECASE
)
_RANK_LIMIT = 1 << 20


def ranks_by_name(names: Sequence[str], taken: Mapping[str, int]) -> dict[str, int]:
    """The rank of each file, as far as the names tell. ``taken``: numbers that a name bears and that are no rank (its pid).

    Two files may well get one rank: they are two dumps of it.
    """
    found: dict[str, int] = {}
    shapes: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {}
    for name in names:
        bare = _ENDINGS.sub("", name)
        called = _CALLED.findall(bare)
        if called:
            found[name] = int(called[-1])
            continue
        numbers = tuple(int(number[-20:]) for number in _NUMBER.findall(bare))
        shapes.setdefault(tuple(_NUMBER.split(bare)), {})[name] = numbers
    for words, alike in shapes.items():
        found |= _by_difference(words, alike, taken)
    return found


def _by_difference(
    words: Sequence[str], alike: Mapping[str, tuple[int, ...]], taken: Mapping[str, int]
) -> dict[str, int]:
    """Ranks of names that differ in their numbers alone: ``words`` are what stands before, between and after those.

    It is the last number that is another one in each of them, else the last that varies: those before it tell several runs
    apart. Where a number that varies counts nodes and another counts what is within a node, it cannot be known.
    """
    places = range(len(words) - 1)
    columns = [{name: numbers[place] for name, numbers in alike.items()} for place in places]
    varying = [place for place in places if len(set(columns[place].values())) > 1 or len(alike) == 1]
    within = [place for place in places if _WITHIN_NODE.search(words[place])]
    if within and any(place not in within for place in varying):
        return {}
    possible = [
        place
        for place in varying
        if all(number < _RANK_LIMIT and number != taken.get(name) for name, number in columns[place].items())
    ]
    distinct = [place for place in possible if len(set(columns[place].values())) == len(alike)]
    chosen = (distinct or [place for place in possible if place == varying[-1]])[-1:]
    return columns[chosen[0]] if chosen else {}
