"""How the processes of a job are numbered and named. Pure; imports nothing of ours.

A job is one world of ranks, and all processes that share a group with it: inference engines, savers, actors, each
with ranks of its own. The analysis uses one number per process. A rank of the job's own world has its rank as number.
Every other process, a *guest*, has a number that no rank has, made of its world and its rank there, so it is the same
at every reading. People read its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from zlib import crc32

#: No job has this many ranks, and no other number that we write has as many digits and begins so (times in ms begin with 17).
FIRST_GUEST = 1_000_000_000_000
_WORLD_SIZE = 1_000_000
_WORLDS = 500_000
_GUEST = r"1[0-4]\d{11}(?!\d)"
_GUESTS = rf"{_GUEST}(?:-{_GUEST})?"
#: Numbers as ``model.text.format_ranks`` writes them, with guests at the end, and the word before them. A match begins with the
#: first number: of a list of thousands without guests no other number is tried.
_MENTION = re.compile(
    rf"(?:\b([Rr]ank)s? )?(?<![\d.])(?<!\d[,-])((?:\d{{1,7}}(?:-\d{{1,7}})?,)*)({_GUESTS}(?:,{_GUESTS})*)"
)


def is_guest(number: int) -> bool:
    """True if a process is of another world than the job's own."""
    return number >= FIRST_GUEST


def guest_number(world: str, rank: int) -> int:
    """Return the number of a process of another world, made of that world's identity and its rank there."""
    return FIRST_GUEST + crc32(world.encode()) % _WORLDS * _WORLD_SIZE + min(max(rank, 0), _WORLD_SIZE - 1)


def world_of(number: int) -> int | None:
    """Return what the numbers of one world have in common; None for ranks of the job's own."""
    return number // _WORLD_SIZE if is_guest(number) else None


def same_world(number: int, numbers: Sequence[int]) -> Sequence[int]:
    """Return those of ``numbers``, ascending, that are of the same world as ``number``."""
    if not numbers or not is_guest(numbers[-1]):
        return numbers
    world = world_of(number)
    return [other for other in numbers if world_of(other) == world]


def name_guests(text: str, names: Mapping[int, str]) -> str:
    """Return the text with guests by name, and without ``rank`` before a name.

    ``ranks 0-1,1000001000000`` becomes ``ranks 0-1 and engine/0``.
    """

    def name(match: re.Match[str]) -> str:
        word, own, guests = match.groups()
        shown = " and ".join(_name_range(part, names) for part in guests.split(","))
        if not own:
            return shown
        several = "s" if "," in own[:-1] or "-" in own else ""
        return f"{word}{several} {own[:-1]} and {shown}" if word else f"{own[:-1]} and {shown}"

    return _MENTION.sub(name, text)


def _name_range(part: str, names: Mapping[int, str]) -> str:
    first, _, last = part.partition("-")
    one = names.get(int(first)) or f"a process of another job ({int(first) % _WORLD_SIZE})"
    if not last:
        return one
    return f"{one}-{(names.get(int(last)) or last).rpartition('/')[2]}"
