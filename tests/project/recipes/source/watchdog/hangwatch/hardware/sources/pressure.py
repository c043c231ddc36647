"""How long tasks of this node wait for a processor, memory or a disk: the kernel's pressure stall information (PSI).

May import hangwatch.model and the standard library. Files: ``/proc/pressure/cpu``, ``io``, ``memory`` as in Linux 6.12,
Documentation/accounting/psi.rst: ``some avg10=2.54 avg60=22.06 avg300=26.87 total=173154518``, then a line ``full``.
``avgN`` is a percentage of the last N seconds, ``total`` is in microseconds. A kernel before 5.13 has no ``full`` for cpu.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from hangwatch.model.capture import Gap
from hangwatch.model.devices import Absence, NodeFacts, Pressure
from hangwatch.sources.discovery.rank_processes import RankProcess

NAME = "pressure"
_ROOT = Path("/proc/pressure")
_RESOURCES = ("cpu", "io", "memory")
#: Without CONFIG_PSI there is no such folder; with ``psi=0`` a read is refused so (kernel/sched/psi.c, psi_show).
_NOT_THERE = frozenset({errno.ENOENT, errno.EOPNOTSUPP})


class NodePressure:
    """Reads the averages: they look back by themselves, so no first reading is kept."""

    name = NAME

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root

    def begin(self) -> None:
        """Keep nothing."""

    def read(self, _ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """Return the pressure on each resource now."""
        try:
            found = [parse_pressure(name, (self._root / name).read_bytes()) for name in _RESOURCES]
        except OSError as error:
            if error.errno in _NOT_THERE:
                return NodeFacts("", 0, absent=(Absence(NAME, "this kernel measures no pressure"),), looked=(NAME,))
            return Gap(NAME, f"{self._root}: {error.strerror or error}")
        return NodeFacts("", 0, pressures=tuple(one for one in found if one is not None), looked=(NAME,))


def parse_pressure(resource: str, content: bytes) -> Pressure | None:
    """Return the pressure that a file tells; None where it is not of this form."""
    shares: dict[str, float] = {}
    for line in content.decode("ascii", "replace").splitlines():
        scope, *fields = line.split()[:8] or [""]
        value = dict(field.partition("=")[::2] for field in fields).get("avg60", "")
        if scope in {"some", "full"} and value.replace(".", "", 1).isdecimal():
            shares[scope] = min(round(float(value) / 100, 4), 1.0)
    return Pressure(resource, shares["some"], shares.get("full")) if "some" in shares else None
