"""No rank at fault: all are where they should be, and nothing completes; or the hardware under a rank has failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.hardware import Finding, find_faults
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.ranks.device import OwnDevice
from hangwatch.analysis.ranks.mutexes import find_cycles
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.advisories import advisories
from hangwatch.causes.evidence import at_stack
from hangwatch.causes.rules.rank.mutexes import at_mutexes
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation
from hangwatch.model.devices import HARDWARE, Communicator
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
#: The rank itself is in no call that says what it waits for: where its line stands is chance.
DEVICE_HANGS = Signature(
    "device-hangs",
    "watchdog-asleep",
    "strong",
    beats=("skipped-collective", "uneven-inputs", "rank-conditional-collective", "sharded-forward-divergence"),
)
#: Its own kernels do not end, or the driver hangs: a pass that waits for other ranks has something in flight.
OWN_BACKWARD = Signature("device-hangs", "in-backward-with-nothing-in-flight", "strong", beats=DEVICE_HANGS.beats)
ERRORS = Signature("fabric-or-device", "errors-seen", "strong")
HINT = Signature("fabric-or-device", "hint-seen", "likely")
#: By exclusion: all of the hardware was looked at and is clean, or it was not looked at.
CLEAN = Signature("fabric-or-device", "all-clean", "possible")
UNSEEN = Signature("fabric-or-device", "not-looked-at", "possible")
CONTRADICTED = Signature("fabric-or-device", "ranks-launched-unequally", "possible")
ON_GLOO = Signature("fabric-or-device", "on-gloo", "possible")
#: Of a communicator that the program has made itself no recorder shows whether all have called the same.
OWN_COMMUNICATOR = Signature("fabric-or-device", "in-a-communicator-of-its-own", "likely")

#: The row by the gravest finding.
_BY_WEIGHT = {"proof": FAILED, "strong": ERRORS, "hint": HINT}

_SHOWN = 6
#: What says more, by the source that would have said it; what none of ours does comes last.
_COMMANDS = (
    ("kernel log", "dmesg -T | grep -iE 'xid|nvlink'"),
    ("nvml", "nvidia-smi nvlink -e"),
    ("nccl ras", "ncclras -v"),
    ("", "nvidia-smi topo -m"),
    ("", "all_reduce_perf -b 8 -e 1G -f 2"),
)
_ASKED_FOR = 3


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
    hanging = _awaiting(case, members, "watchdog")
    behind = _behind(here)
    if faults:
        said += f" {_named(faults[0])}"
        row = _BY_WEIGHT[faults[0].weight]
    elif hanging:
        said += f" {_do_not_come_back(hanging)}"
        row = DEVICE_HANGS
    else:
        said += f" {_not_found(case)}"
        row = CLEAN if case.capture.nodes else UNSEEN
        said += f" {_would_tell(case, here, behind)}"
    if behind:
        said += (
            f" On the GPU of rank {format_ranks(behind)} it has not begun: something before it is still running there."
        )
    unequal = [p for n in case.capture.nodes for r in n.ras for p in r.problems if p.kind == "mismatch"]
    if unequal and not faults and not hanging:
        row = CONTRADICTED
        evidence += tuple(Evidence(None, "nccl ras", p.says) for p in unequal[:_SHOWN])
    locked = _locked(case, members)
    if locked:
        whose = format_ranks({e.rank for e in locked if e.rank is not None})
        said += f" Threads of rank {whose} wait for each other in native code."
    found = at_hardware(faults) + _at_watchdogs(case, hanging) + locked[:_SHOWN]
    return Match(row, said, found + evidence + _seen(case) + _advised(case))


def own_communicator(case: Case) -> Match | None:
    """All ranks wait in a communicator of NCCL that torch has not made, as engines do when they start, and nothing moves."""
    views = [view for rank, view in sorted(case.views.items()) if rank in case.world]
    inside = [view for view in views if view.wait is not None and view.wait.kind == "communicator"]
    if case.blame.culprits or not inside or len(inside) < len(views) or len(views) < len(case.world):
        return None
    members = [view.rank for view in inside]
    faults = find_faults(case.capture, members, case.onset_ns or case.capture.at_ns)
    said = "All ranks wait in a communicator of NCCL that the program has made itself, and nothing moves."
    said += f" {_named(faults[0])}" if faults else f" {_not_found(case)} {_would_tell(case, members)}"
    row = _BY_WEIGHT[faults[0].weight] if faults else OWN_COMMUNICATOR
    return Match(row, said, at_hardware(faults) + at_stack(case, members[0]) + _seen(case) + _advised(case))


def _locked(case: Case, members: Collection[int]) -> tuple[Evidence, ...]:
    """Threads of these ranks that wait for each other's mutexes: one of them may be what should have moved the data."""
    views = (case.views[rank] for rank in sorted(members) if rank in case.views)
    return tuple(e for view in views for cycle in find_cycles(view.capture) for e in at_mutexes(view, cycle))


def failed_device(case: Case) -> Match | None:
    """A rank that holds the others up, on a GPU that has failed: whatever its program does, that is why."""
    culprits = [r for r in case.blame.culprits if r in case.views]
    began_ns = case.onset_ns or case.capture.at_ns
    faults = [f for f in find_faults(case.capture, culprits, began_ns) if f.weight == "proof" and f.ranks]
    if not faults:
        return None
    said = f"Rank {format_ranks(faults[0].ranks)} holds the others up. {_named(faults[0])}"
    return Match(DEVICE_FAILED, said, at_hardware(faults))


def hanging_device(case: Case) -> Match | None:
    """A rank that holds the others up, whose calls to its device do not come back: those of torch's watchdog neither."""
    if hanging := _awaiting(case, case.blame.culprits, "watchdog"):
        return Match(DEVICE_HANGS, _do_not_come_back(hanging), _at_watchdogs(case, hanging))
    alone = _awaiting(case, case.blame.culprits, "backward")
    if not alone:
        return None
    said = (
        f"Rank {format_ranks(alone)} waits in backward for its own device: no operation with other ranks is in flight."
    )
    evidence = tuple(Evidence(r, "flight recorder", "no operation of NCCL is in flight") for r in alone)
    return Match(OWN_BACKWARD, said, evidence + at_stack(case, alone[0]))


def _awaiting(case: Case, ranks: Iterable[int], known_by: OwnDevice) -> list[int]:
    """Which of these ranks wait for their own device, as far as that is known in this way."""
    return [r for r in sorted(ranks) if r in case.views and case.views[r].own_device == known_by]


def _do_not_come_back(ranks: Sequence[int]) -> str:
    return f"No call of rank {format_ranks(ranks)} to its device comes back: its driver or the device hangs."


def _at_watchdogs(case: Case, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    return tuple(Evidence(r, "process", _asleep(case.views[r])) for r in ranks)


def _asleep(view: RankView) -> str:
    before, after = view.capture.processes[-2:]
    slept_s = (after.at_ns - before.at_ns) / 1e9
    return f"torch's NCCL watchdog, which looks at the device ten times a second, has not run in {slept_s:.1f} s"


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


def _launching(communicator: Communicator) -> str:
    """Whether hosts still give operations to their devices: those that do run ahead of a device, and do not wait for it."""
    within = f"within {communicator.window_s:.1f} s"
    if not communicator.launching:
        return (
            f"communicator {communicator.id}: none of its {communicator.size} ranks has launched an operation {within}"
        )
    places = format_ranks(communicator.launching)
    return (
        f"communicator {communicator.id}: of its {communicator.size} ranks {places} have launched operations {within}"
    )


def _would_tell(case: Case, members: Collection[int], behind: Collection[int] = ()) -> str:
    """Three commands that would say more, and on which nodes; what was looked at already is not asked for again."""
    own = case.views[min(behind or members)].capture.identity
    nodes = {case.views[r].capture.identity.node for r in members}
    looked = {source for node in case.capture.nodes for source in node.looked}
    commands = [command for source, command in _COMMANDS if source not in looked]
    where = f"on {own.node}" if len(nodes) == 1 else "on every node of the group"
    if any(case.views[r].capture.native is not None for r in members):
        rest = " and ".join(f"`{command}`" for command in commands[:_ASKED_FOR])
        return f"To learn more: {where} {rest}."
    first = f"`hangwatch dump --native-stacks --pid {own.pid}` on {own.node} (it pauses its ranks for a moment)"
    rest = " and ".join(f"`{command}`" for command in commands[: _ASKED_FOR - 1])
    return f"To learn more: {first}; {where} {rest}."


def _advised(case: Case) -> tuple[Evidence, ...]:
    """Public reports of hangs of the versions of NCCL that the ranks use."""
    flights = (rank.flight for rank in case.capture.ranks)
    versions = {flight.library: "flight recorder" for flight in flights if flight is not None and flight.library}
    versions |= {r.nccl_version: "nccl ras" for node in case.capture.nodes for r in node.ras if r.nccl_version}
    return tuple(
        Evidence(None, source, f"NCCL {version}, of which hangs are known: {one.says} ({one.url})")
        for version, source in sorted(versions.items())
        for one in advisories(version)
    )


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
            found += [Evidence(None, "nccl ras", _launching(c)) for c in report.communicators if c.window_s]
    return tuple(found[:_SHOWN])
