"""Ports of InfiniBand and RoCE cards: whether their links are up, and which error counters grow.

May import hangwatch.model and the standard library. Files: ``/sys/class/infiniband/DEVICE/ports/N/`` as in the kernel's
Documentation/ABI/stable/sysfs-class-infiniband (``state``, ``phys_state``, ``rate``, ``counters/``) and the
``hw_counters/`` of mlx5 (drivers/infiniband/hw/mlx5/counters.c). The growth of a counter counts, not its value.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.devices import Absence, NodeFacts, Port
from hangwatch.sources.discovery.rank_processes import RankProcess

NAME = "fabric ports"
_ROOT = Path("/sys/class/infiniband")
#: Counters that do not change on a healthy link. Congestion marks, waits and packets
#: out of order (adaptive routing) are none of them.
ERROR_COUNTERS = frozenset(
    {
        "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
        "local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err",
        "req_transport_retries_exceeded", "req_cqe_error", "resp_cqe_error", "rx_icrc_encapsulated",
    }
)  # fmt: skip


class PortReading(msgspec.Struct, frozen=True):
    """One port at one moment (``at_s``: monotonic).

    ``counters``: the known ones of ``counters/`` and ``hw_counters/``.
    """

    device: str
    port: int
    at_s: float
    state: str
    physical_state: str
    rate: str
    counters: Mapping[str, int]


class FabricPorts:
    """Keeps the first reading after a suspicion, and finds what has changed since."""

    name = NAME

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._first: dict[tuple[str, int], PortReading] = {}

    def begin(self) -> None:
        """Take the reading that later ones are compared with."""
        try:
            self._first = {(r.device, r.port): r for r in read_ports(self._root)}
        except OSError:
            self._first = {}

    def read(self, _ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """Return the ports now, and which counters have grown since ``begin``."""
        try:
            readings = read_ports(self._root)
        except FileNotFoundError:
            readings = ()
        except OSError as error:
            return Gap(NAME, f"{self._root}: {error.strerror or error}")
        if not readings:
            return NodeFacts(
                "", 0, absent=(Absence(NAME, "no InfiniBand or RoCE device on this node"),), looked=(NAME,)
            )
        ports = tuple(compare(self._first.get((r.device, r.port), r), r) for r in readings)
        return NodeFacts("", 0, ports=ports, looked=(NAME,))


def read_ports(root: Path = _ROOT) -> tuple[PortReading, ...]:
    """Return all ports of all cards, by name. Raises OSError if the class of devices is missing or unreadable."""
    return tuple(
        _read_port(device.name, port)
        for device in sorted(root.iterdir())
        for port in sorted(_children(device / "ports"))
        if port.name.isdigit()
    )


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read_port(device: str, folder: Path) -> PortReading:
    counters: dict[str, int] = {}
    for part in ("counters", "hw_counters"):
        for name in ERROR_COUNTERS:
            value = _read(folder / part / name)
            if value.isascii() and value.isdigit():
                counters[name] = int(value)
    return PortReading(
        device=device,
        port=int(folder.name),
        at_s=time.monotonic(),
        state=_word(_read(folder / "state")),
        physical_state=_word(_read(folder / "phys_state")),
        rate=_read(folder / "rate"),
        counters=counters,
    )


def _read(path: Path) -> str:
    """Return the text of a small file; empty if missing or unreadable (some counters are root's alone)."""
    try:
        with path.open("rb") as file:
            return file.read(256).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _word(text: str) -> str:
    """Return ``ACTIVE`` of ``4: ACTIVE``."""
    return text.partition(":")[2].strip() or text


def compare(first: PortReading, now: PortReading) -> Port:
    """Return the port now, with the growth of its counters.

    A counter that has become less was reset; one that was not there before tells nothing.
    """
    grown = {
        name: value - first.counters[name]
        for name, value in sorted(now.counters.items())
        if value > first.counters.get(name, value)
    }
    return Port(
        device=now.device,
        port=now.port,
        state=now.state,
        physical_state=now.physical_state,
        rate=now.rate,
        grown=grown,
        window_s=round(now.at_s - first.at_s, 3),
        was_up=first.state == "ACTIVE",
    )
