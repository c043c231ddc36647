"""Hangs without a rank at fault: all are where they should be, and nothing completes; or a rank's hardware has failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.ranks.device import OwnDevice
from hangwatch.analysis.ranks.mutexes import find_cycles
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_stack
from hangwatch.causes.match import Level, Match
from hangwatch.causes.rules.rank.mutexes import at_mutexes
from hangwatch.hardware.analysis import Finding, find_faults
from hangwatch.model.collectives import Operation
from hangwatch.model.devices import HARDWARE, Communicator
from hangwatch.model.incident import Evidence
from hangwatch.model.text import number_ranks, ranks_do

#: How strongly the gravest finding speaks.
_LEVELS: Mapping[str, Level] = {"proof": "certain", "strong": "strong", "hint": "likely"}

_SHOWN = 6
#: Commands that tell more, by the source that would have told it; those of no source come last.
_COMMANDS = (
    ("kernel log", "dmesg -T | grep -iE 'xid|nvlink'"),
    ("nvml", "nvidia-smi nvlink -e"),
    ("nccl ras", "ncclras -v"),
    ("", "nvidia-smi topo -m"),
    ("", "all_reduce_perf -b 8 -e 1G -f 2"),
)
_ASKED_FOR = 3


def fabric(case: Case) -> Match | None:
    """Return a match if every member is in the same operation with the same tensors, by the recorder."""
    operation = case.operation
    if case.blame.shape != "together" or operation is None:
        return None
    here = case.history.at(operation.group.key, operation.seq)
    members = set(operation.group.ranks) or set(case.world)
    if not members.issubset(here):
        return None
    number = f"sequence number {operation.seq} of {operation.group.label}"
    said = f"All members are in {describe(operation)} ({number}), and it does not complete."
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            (
                f"sequence number {o.seq} of {o.group.label}: {describe(o)}, "
                f"{'started' if o.started else 'enqueued'}, not completed"
            ),
        )
        for r, o in sorted(here.items())
    )
    if operation.backend != "nccl":
        return Match("fabric-or-device", "possible", said, evidence)
    level: Level
    faults = find_faults(case.capture, members, operation.created_ns)
    hanging = _awaiting(case, members, "watchdog")
    behind = _behind(here)
    if faults:
        said += f" {_named(faults[0])}"
        level = _LEVELS[faults[0].weight]
    elif hanging:
        said += f" {_do_not_come_back(hanging)}"
        level = "strong"
    else:
        said += f" {_not_found(case)}"
        level = "possible"
        said += f" {_would_tell(case, here, behind)}"
    if behind:
        said += (
            f" On the GPU of {number_ranks(behind)} the operation has not started: something before it "
            "is still running there."
        )
    unequal = [p for n in case.capture.nodes for r in n.ras for p in r.problems if p.kind == "mismatch"]
    if unequal and not faults and not hanging:
        level = "possible"
        evidence += tuple(Evidence(None, "nccl ras", p.says) for p in unequal[:_SHOWN])
    locked = _locked(case, members)
    if locked:
        whose = number_ranks({e.rank for e in locked if e.rank is not None})
        said += f" Threads of {whose} wait for each other in native code."
    found = at_hardware(faults) + _at_watchdogs(case, hanging) + locked[:_SHOWN]
    cause = "device-hangs" if hanging and not faults else "fabric-or-device"
    return Match(cause, level, said, found + evidence + _seen(case))


def own_communicator(case: Case) -> Match | None:
    """Return a match if all ranks wait, without any progress, in an NCCL communicator that torch did not create.

    Engines create such communicators when they start.
    """
    world = frozenset(case.world)
    views = [view for rank, view in sorted(case.views.items()) if rank in world]
    inside = [view for view in views if view.wait is not None and view.wait.kind == "communicator"]
    if case.blame.culprits or not inside or len(inside) < len(views) or len(views) < len(world):
        return None
    members = [view.rank for view in inside]
    faults = find_faults(case.capture, members, case.onset_ns or case.capture.at_ns)
    said = "All ranks wait in an NCCL communicator of the program's own, and nothing moves."
    said += f" {_named(faults[0])}" if faults else f" {_not_found(case)} {_would_tell(case, members)}"
    level: Level = _LEVELS[faults[0].weight] if faults else "likely"
    return Match("fabric-or-device", level, said, at_hardware(faults) + at_stack(case, members[0]) + _seen(case))


def _locked(case: Case, members: Collection[int]) -> tuple[Evidence, ...]:
    """Return the evidence that threads of these ranks wait for each other's mutexes.

    One of these threads may be the one that should have moved the data.
    """
    views = (case.views[rank] for rank in sorted(members) if rank in case.views)
    return tuple(e for view in views for cycle in find_cycles(view.capture) for e in at_mutexes(view, cycle))


def failed_device(case: Case) -> Match | None:
    """Return a match if a rank that holds the others up runs on a GPU that has failed.

    Whatever its program does, that is the cause.
    """
    culprits = [r for r in case.blame.culprits if r in case.views]
    began_ns = case.onset_ns or case.capture.at_ns
    faults = [f for f in find_faults(case.capture, culprits, began_ns) if f.weight == "proof" and f.ranks]
    if not faults:
        return None
    said = f"{ranks_do(faults[0].ranks, 'holds', 'hold').capitalize()} up the others. {_named(faults[0])}"
    return Match("fabric-or-device", "certain", said, at_hardware(faults))


def hanging_device(case: Case) -> Match | None:
    """Return a match if a rank that holds the others up waits for its own device.

    Either the calls of torch\'s watchdog do not return, or the rank is in backward and no NCCL operation is in
    flight.
    """
    if hanging := _awaiting(case, case.blame.culprits, "watchdog"):
        return Match("device-hangs", "strong", _do_not_come_back(hanging), _at_watchdogs(case, hanging))
    alone = _awaiting(case, case.blame.culprits, "backward")
    if not alone:
        return None
    said = (
        f"{ranks_do(alone, 'waits', 'wait').capitalize()} in backward for the GPU: no operation with other ranks is in "
        "flight."
    )
    evidence = tuple(Evidence(r, "flight recorder", "no NCCL operation is in flight") for r in alone)
    return Match("device-hangs", "strong", said, evidence + at_stack(case, alone[0]))


def _awaiting(case: Case, ranks: Iterable[int], known_by: OwnDevice) -> list[int]:
    """Return those of these ranks that wait for their own device, as far as ``known_by`` tells."""
    return [r for r in sorted(ranks) if r in case.views and case.views[r].own_device == known_by]


def _do_not_come_back(ranks: Sequence[int]) -> str:
    return f"Calls of {number_ranks(ranks)} to the GPU do not return: the driver or the device hangs."


def _at_watchdogs(case: Case, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    return tuple(Evidence(r, "process", _asleep(case.views[r])) for r in ranks)


def _asleep(view: RankView) -> str:
    before, after = view.capture.processes[-2:]
    slept_s = (after.at_ns - before.at_ns) / 1e9
    return f"PyTorch's NCCL watchdog checks the device ten times a second, but has not run for {slept_s:.1f} s"


def at_hardware(faults: Sequence[Finding]) -> tuple[Evidence, ...]:
    """Return the findings as evidence."""
    return tuple(
        Evidence(f.ranks[0] if len(f.ranks) == 1 else None, f.source, f"{f.part}: {f.says}") for f in faults[:_SHOWN]
    )


def _named(fault: Finding) -> str:
    whose = f" of {number_ranks(fault.ranks)}" if fault.ranks else ""
    verb = {"proof": "has failed", "strong": "shows errors", "hint": "looks like a transfer that does not move"}[
        fault.weight
    ]
    return f"{fault.part[0].upper()}{fault.part[1:]}{whose} {verb}: {fault.says}."


def _behind(here: Mapping[int, Operation]) -> tuple[int, ...]:
    """Return the ranks whose device has not begun the operation, if other ranks' devices have.

    Recorded only with NCCL's timing.
    """
    waiting = tuple(sorted(r for r, o in here.items() if not o.started and not o.completed))
    return waiting if len(waiting) < len(here) else ()


def _not_found(case: Case) -> str:
    """Return what was examined without a finding, and what was not examined."""
    looked = {source for node in case.capture.nodes for source in node.looked}
    unseen = [name for name in HARDWARE if name not in looked]
    clean = [name for name in HARDWARE if name in looked]
    said = f"No hardware fault found in {', '.join(clean)}. " if clean else ""
    return said + (f"Not checked: {', '.join(unseen)}." if unseen else "")


def _launching(communicator: Communicator) -> str:
    """Return a sentence on which hosts still launch operations.

    Those that do run ahead of their devices and do not wait for them.
    """
    within = f"within {communicator.window_s:.1f} s"
    if not communicator.launching:
        return f"communicator {communicator.id}: none of its {communicator.size} ranks launched an operation {within}"
    places = number_ranks(communicator.launching)
    return f"communicator {communicator.id}: {places} of {communicator.size} launched operations {within}"


def _would_tell(case: Case, members: Collection[int], behind: Collection[int] = ()) -> str:
    """Return three commands that would tell more, and on which nodes, without what was examined already."""
    own = case.views[min(behind or members)].capture.identity
    nodes = {case.views[r].capture.identity.node for r in members}
    looked = {source for node in case.capture.nodes for source in node.looked}
    commands = [command for source, command in _COMMANDS if source not in looked]
    where = f"on {own.node}" if len(nodes) == 1 else "on every node of the group"
    if any(case.views[r].capture.native is not None for r in members):
        rest = " and ".join(f"`{command}`" for command in commands[:_ASKED_FOR])
        return f"To learn more, run {rest} {where}."
    first = f"`hangwatch dump --native-stacks --pid {own.pid}` on {own.node} (it pauses the ranks for a moment)"
    rest = " and ".join(f"`{command}`" for command in commands[: _ASKED_FOR - 1])
    return f"To learn more, run {first}, then {rest} {where}."


def _seen(case: Case) -> tuple[Evidence, ...]:
    """Return what the nodes have and lack, in a few lines."""
    found: list[Evidence] = []
    for node in case.capture.nodes:
        found += [Evidence(None, a.source, f"{node.node}: {a.says}") for a in node.absent]
        for report in node.ras:
            sizes = ", ".join(f"{c.id} of {c.size}" for c in report.communicators[:_SHOWN])
            if sizes and not report.problems:
                says = (
                    f"{node.node}: NCCL {report.nccl_version} reports no fault; all ranks have launched "
                    f"the same in {sizes}"
                )
                found.append(Evidence(None, "nccl ras", says))
            found += [Evidence(None, "nccl ras", _launching(c)) for c in report.communicators if c.window_s]
    return tuple(found[:_SHOWN])
