"""No rank at fault: all are where they should be, and nothing completes; or the hardware under a rank has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.hardware import Finding, find_faults
from hangwatch.analysis.operations.signatures import describe
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation
from hangwatch.model.devices import HARDWARE
from hangwatch.model.incident import Evidence
from hangwatch.model.text import format_ranks

FAILED = Signature("fabric-or-device", "part-failed", "certain")
#: Whatever its program does on a device that has failed, that is why.
DEVICE_FAILED = Signature(
    "fabric-or-device",
    "device-of-the-culprit-failed",
    "certain",
    beats=("init-missing-rank", "blocked-io", "rank-raised", "child-stall", "gil-held"),
)
ERRORS = Signature("fabric-or-device", "errors-seen", "strong")
HINT = Signature("fabric-or-device", "hint-seen", "likely")
#: By exclusion: all of the hardware was looked at and is clean, or it was not looked at.
CLEAN = Signature("fabric-or-device", "all-clean", "possible")
UNSEEN = Signature("fabric-or-device", "not-looked-at", "possible")
CONTRADICTED = Signature("fabric-or-device", "ranks-launched-unequally", "possible")
ON_GLOO = Signature("fabric-or-device", "on-gloo", "possible")

#: The row by the gravest finding.
_BY_WEIGHT = {"proof": FAILED, "strong": ERRORS, "hint": HINT}

_SHOWN = 6


def fabric(case: Case) -> Match | None:
    """Every member is in the same operation with the same tensors, by the recorder."""
    operation = case.operation
    if case.blame.shape != "together" or operation is None:
        return None
    here = case.history.at(operation.group.key, operation.seq)
    members = set(operation.group.ranks) or set(case.world)
    if not members.issubset(here):
        return None
    number = f"number {operation.seq} of {operation.group.label}"
    said = f"All members are in {describe(operation)}, {number}, and it does not complete."
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            f"number {o.seq} of {o.group.label}: {describe(o)}, {'started' if o.started else 'enqueued'}, not completed",
        )
        for r, o in sorted(here.items())
    )
    if operation.backend != "nccl":
        return Match(ON_GLOO, said, evidence)
    faults = find_faults(case.capture, members, operation.created_ns)
    behind = _behind(here)
    if faults:
        said += f" {_named(faults[0])}"
        row = _BY_WEIGHT[faults[0].weight]
    else:
        said += f" {_not_found(case)}"
        row = CLEAN if case.capture.nodes else UNSEEN
    if behind:
        said += (
            f" On the GPU of rank {format_ranks(behind)} it has not begun: something before it is still running there."
        )
    unequal = [p for n in case.capture.nodes for r in n.ras for p in r.problems if p.kind == "mismatch"]
    if unequal and not faults:
        row = CONTRADICTED
        evidence += tuple(Evidence(None, "nccl ras", p.says) for p in unequal[:_SHOWN])
    return Match(row, said, at_hardware(faults) + evidence + _seen(case))


def failed_device(case: Case) -> Match | None:
    """A rank that holds the others up, on a GPU that has failed: whatever its program does, that is why."""
    culprits = [r for r in case.blame.culprits if r in case.views]
    began_ns = case.onset_ns or case.capture.at_ns
    faults = [f for f in find_faults(case.capture, culprits, began_ns) if f.weight == "proof" and f.ranks]
    if not faults:
        return None
    said = f"Rank {format_ranks(faults[0].ranks)} holds the others up. {_named(faults[0])}"
    return Match(DEVICE_FAILED, said, at_hardware(faults))


def at_hardware(faults: Sequence[Finding]) -> tuple[Evidence, ...]:
    """The findings as evidence."""
    return tuple(
        Evidence(f.ranks[0] if len(f.ranks) == 1 else None, f.source, f"{f.part}: {f.says}") for f in faults[:_SHOWN]
    )


def _named(fault: Finding) -> str:
    whose = f" of rank {format_ranks(fault.ranks)}" if fault.ranks else ""
    verb = {"proof": "has failed", "strong": "shows errors", "hint": "fits a transfer that does not move"}[fault.weight]
    return f"{fault.part[0].upper()}{fault.part[1:]}{whose} {verb}: {fault.says}."


def _behind(here: Mapping[int, Operation]) -> tuple[int, ...]:
    """The ranks on whose device the operation has not begun, where the others' has (recorded with NCCL's timing alone)."""
    waiting = tuple(sorted(r for r, o in here.items() if not o.started and not o.completed))
    return waiting if len(waiting) < len(here) else ()


def _not_found(case: Case) -> str:
    """What was looked at without a finding, and what was not looked at."""
    looked = {source for node in case.capture.nodes for source in node.looked}
    unseen = [name for name in HARDWARE if name not in looked]
    clean = [name for name in HARDWARE if name in looked]
    said = f"Nothing speaks against the hardware in {', '.join(clean)}. " if clean else ""
    return said + (f"Not seen: {', '.join(unseen)}." if unseen else "")


def _seen(case: Case) -> tuple[Evidence, ...]:
    """What the nodes have and have not, in a few lines."""
    found: list[Evidence] = []
    for node in case.capture.nodes:
        found += [Evidence(None, a.source, f"{node.node}: {a.says}") for a in node.absent]
        for report in node.ras:
            sizes = ", ".join(f"{c.id} of {c.size}" for c in report.communicators[:_SHOWN])
            if sizes and not report.problems:
                says = f"{node.node}: NCCL {report.nccl_version} finds nothing wrong; all ranks have launched alike in {sizes}"
                found.append(Evidence(None, "nccl ras", says))
    return tuple(found[:_SHOWN])
