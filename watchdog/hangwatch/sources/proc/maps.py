"""What a process has mapped into its memory: ``/proc/PID/maps`` (proc_pid_maps(5)).

May import ``sources.proc`` and the standard library. Reading a map costs about a millisecond.
"""

from __future__ import annotations

from typing import NamedTuple

from hangwatch.sources.proc.files import read_whole

_LIMIT_BYTES = 16 << 20
_DELETED = " (deleted)"


class Mapping(NamedTuple):
    """A range of addresses, without ``end``, and what is mapped there.

    ``file``: device and inode, the same in all processes. ``path``: empty if no file is mapped; a name in brackets
    for the kernel's own (``[vdso]``).
    """

    start: int
    end: int
    executable: bool
    file: str
    path: str

    def __contains__(self, address: object) -> bool:
        return isinstance(address, int) and self.start <= address < self.end


def parse_maps(data: bytes, path: bytes = b"") -> tuple[Mapping, ...]:
    """Return the mappings whose path contains ``path``, by address; lines of another form are left out."""
    found = []
    for line in data.splitlines():
        if path not in line:
            continue
        fields = line.decode(errors="replace").split(maxsplit=5)
        try:
            start, end = (int(number, 16) for number in fields[0].split("-"))
            name = fields[5].removesuffix(_DELETED) if len(fields) > 5 else ""
            found.append(Mapping(start, end, "x" in fields[1], f"{fields[3]} {fields[4]}", name))
        except (ValueError, IndexError):
            continue
    return tuple(found)


def read_maps(pid: int, path: bytes = b"") -> tuple[Mapping, ...]:
    """Return the mappings of a process whose path contains ``path``; none if unreadable."""
    return parse_maps(read_whole(f"/proc/{pid}/maps", _LIMIT_BYTES) or b"", path)
