"""What the facts of the nodes say about the hardware under certain ranks. Pure: facts in, findings out.

Xid numbers are those of NVIDIA's "XID Errors" (r570); the ones here come from the GPU, its memory, its links or its
firmware. The others mostly follow from what a program did (13, 31, 43) or from its end (45), and accuse no rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from hangwatch.model.capture import Capture
from hangwatch.model.devices import Gpu, KernelEvent, NodeFacts, Port, RasReport
from hangwatch.model.text import format_ranks

DEVICE_XIDS = {
    48: "uncorrectable memory error", 61: "internal micro-controller breakpoint", 62: "internal micro-controller halt",
    63: "memory row remapped", 64: "memory row could not be remapped", 74: "NVLink error", 79: "GPU has fallen off the bus",
    92: "many memory errors", 94: "contained memory error", 95: "uncontained memory error", 109: "context switch timeout",
    110: "security fault", 119: "GSP firmware does not respond", 120: "GSP firmware error", 121: "C2C link error",
    123: "PMU firmware error", 136: "NVLink alignment timeout", 137: "NVLink privilege error", 140: "unrecovered memory error",
    143: "GPU initialization failed", 144: "NVLink fatal error", 145: "NVLink error", 146: "NVLink error",
    147: "NVLink error", 148: "NVLink error", 149: "NVLink error", 150: "NVLink error", 154: "GPU needs a reset",
    155: "NVLink went down", 156: "memory page retired", 158: "GPU fatal timeout",
}  # fmt: skip
#: Recorded for the future: the memory repaired itself, or has been worn for long.
_HARMLESS = frozenset({63, 92, 94, 156})
#: A GPU in a kernel that waits for data is fully "used" at a fraction of its power.
_SPINNING_USE = 0.95
_SPINNING_POWER = 0.45
_FATAL = ", fatal,"
#: Events of the kernel count from so long before the operation on: a link may fail before the rank that needs it comes there.
_BEFORE_S = 600.0

Weight = Literal["proof", "strong", "hint"]


@dataclass(frozen=True)
class Finding:
    """Something that a node reports.

    ``ranks``: those it concerns; empty if not known. ``part``: the part of the hardware. ``proof``: this part has
    failed. ``strong``: it shows errors now. ``hint``: it fits a transfer that does not move.
    """

    source: str
    weight: Weight
    part: str
    says: str
    ranks: tuple[int, ...] = ()


def find_faults(capture: Capture, ranks: Collection[int], began_ns: int) -> tuple[Finding, ...]:
    """Return the findings about the hardware under these ranks, the gravest first.

    ``began_ns``: when the operation in question began.
    """
    since_ns = began_ns - int(_BEFORE_S * 1e9)
    found = [f for node in capture.nodes for f in _faults(node, frozenset(ranks), since_ns)]
    return tuple(sorted(found, key=lambda f: ("proof", "strong", "hint").index(f.weight)))


def _faults(node: NodeFacts, ranks: frozenset[int], since_ns: int) -> Iterator[Finding]:
    users = {g.bus_id: g for g in node.gpus if g.bus_id}
    for event in node.events:
        if event.at_ns >= since_ns:
            yield from _of_event(event, users, ranks, node.node)
    for gpu in node.gpus:
        if not ranks.isdisjoint(gpu.ranks) or not any(g.ranks for g in node.gpus):
            yield from _of_gpu(gpu, node.node)
    yield from _spinning([g for g in node.gpus if not ranks.isdisjoint(g.ranks)], node.node)
    for port in node.ports:
        yield from _of_port(port, node.node)
    for report in node.ras:
        yield from _of_ras(report, ranks)


def _of_event(event: KernelEvent, users: dict[str, Gpu], ranks: frozenset[int], node: str) -> Iterator[Finding]:
    if event.kind == "sxid":
        if _FATAL in event.text.lower():
            yield Finding("kernel log", "strong", f"NVSwitch {event.bus_id} of {node}", event.text)
        return
    if event.kind != "xid" or event.code not in DEVICE_XIDS:
        return
    gpu = users.get(event.bus_id)
    concerned = (event.rank,) if event.rank is not None else gpu.ranks if gpu is not None else ()
    if concerned and ranks.isdisjoint(concerned):
        return  # another job's
    # A rank is accused only if it is known to use the GPU.
    sure = bool(concerned) and event.code not in _HARMLESS
    name = f"GPU {gpu.index} ({event.bus_id})" if gpu is not None else f"GPU {event.bus_id}"
    says = f"Xid {event.code}, {DEVICE_XIDS[event.code]}: {event.text}"
    weight: Weight = "proof" if sure else "hint" if event.code in _HARMLESS else "strong"
    yield Finding("kernel log", weight, f"{name} of {node}", says, tuple(concerned))


def _of_gpu(gpu: Gpu, node: str) -> Iterator[Finding]:
    part = f"GPU {gpu.index} ({gpu.bus_id or gpu.uuid}) of {node}"
    if gpu.lost is not None:
        yield Finding(
            "nvml", "proof" if gpu.ranks else "strong", part, f"the driver cannot reach it: {gpu.lost}", gpu.ranks
        )
    for code in gpu.xids:
        if code in DEVICE_XIDS and code not in _HARMLESS:
            says = f"Xid {code}, {DEVICE_XIDS[code]}, reported by the driver since the first reading"
            yield Finding("nvml", "proof" if gpu.ranks else "strong", part, says, gpu.ranks)
    if gpu.links_down:
        says = f"NVLink {format_ranks(gpu.links_down)} went down since the first reading"
        yield Finding("nvml", "proof" if gpu.ranks else "strong", part, says, gpu.ranks)
    grown = ", ".join(f"{name} by {by}" for name, by in sorted(gpu.link_errors.items()))
    if grown:
        yield Finding("nvml", "strong", part, f"NVLink errors grow: {grown}", gpu.ranks)


def _spinning(gpus: list[Gpu], node: str) -> Iterator[Finding]:
    """Yield a finding if all GPUs of the ranks are fully used at little power: their kernels wait for data."""
    idle = [g for g in gpus if spins(g)]
    if gpus and len(idle) == len(gpus):
        watts = ", ".join(
            f"GPU {g.index} {g.utilization:.0%} at {g.power_w:.0f} of {g.power_limit_w:.0f} W" for g in idle[:4]
        )
        ranks = tuple(sorted({r for g in idle for r in g.ranks}))
        says = f"fully used at low power, like kernels that wait for data: {watts}"
        yield Finding("nvml", "hint", f"the GPUs of {node}", says, ranks)


def spins(gpu: Gpu) -> bool:
    """True if a GPU looks as if it were in a transfer that does not move."""
    if gpu.utilization is None or gpu.power_w is None or not gpu.power_limit_w:
        return False
    return gpu.utilization >= _SPINNING_USE and gpu.power_w <= _SPINNING_POWER * gpu.power_limit_w


def _of_port(port: Port, node: str) -> Iterator[Finding]:
    part = f"port {port.device}/{port.port} of {node}"
    if port.state != "ACTIVE" and port.was_up:
        yield Finding(
            "fabric ports", "proof", part, f"{port.state}, {port.physical_state}; it was ACTIVE at the first reading"
        )
    elif port.state in {"INIT", "ARMED"}:
        says = f"is {port.state} instead of ACTIVE: its subnet manager has not brought it up"
        yield Finding("fabric ports", "hint", part, says)
    grown = ", ".join(f"{name} by {by}" for name, by in sorted(port.grown.items()))
    if grown:
        yield Finding("fabric ports", "strong", part, f"errors grow: {grown} in {port.window_s:.0f} s")


def _of_ras(report: RasReport, ranks: frozenset[int]) -> Iterator[Finding]:
    for problem in report.problems:
        if problem.kind == "error" and not ranks.isdisjoint(problem.ranks):
            yield Finding("nccl ras", "strong", "NCCL", problem.says, problem.ranks)
        elif problem.kind in {"dead", "incomplete"}:
            yield Finding("nccl ras", "strong", "NCCL's own network", problem.says, problem.ranks)
