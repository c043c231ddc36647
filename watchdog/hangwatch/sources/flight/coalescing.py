"""Settles the entries of operations that were launched together: what a rank waits in. Pure; may import hangwatch.model.

NCCL's coalesced operations (``batch_isend_irecv``, ``_coalescing_manager``, uneven ``all_gather``) leave an entry
each, which has no events and so stays ``scheduled`` for ever. Then comes one entry named ``coalesced`` for the
launch, without tensors, which completes. All of them share the group and its sequence number. But the launch of sends
and receives is recorded as a collective (``endCoalescing`` without an ``OpType``, as dumps of torch 2.12 show), with
the number of the group's last one. (Read in ``ProcessGroupNCCL.cpp``, ``pointToPoint``, ``collective`` and
``endCoalescing``, and in ``test_c10d_nccl.py``, torch 2.4 to 2.10; up to dump version 2.6 collectives of a batch
leave only the last one.)

A dump of pending operations leaves out a launch that has completed, but never the entries of its operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.model.collectives import COALESCED, Operation


def settle_batches(operations: Sequence[Operation], completed: Mapping[str, int]) -> list[Operation]:
    """Return one rank's operations with every batch settled; input and output are in order of record id.

    Point-to-point operations of a batch stay separate (their peers differ) and take the state of their launch, whose
    own entry is left out. Collectives of a batch become one operation with all their tensors. ``completed``: the last
    completed number of each group by name, from the dump's status; it counts launches that are not in the dump.
    """
    launches: dict[tuple[str, bool, int], list[Operation]] = defaultdict(list)
    operations = _with_their_launches(operations)
    for operation in operations:
        launches[operation.group.name, operation.p2p, operation.seq].append(operation)
    batching = {(name, p2p) for (name, p2p, _), members in launches.items() if _is_batch(members)}
    if not batching:
        return list(operations)
    active_only = not any(operation.completed for operation in operations)
    newest: dict[tuple[str, bool], int] = {}
    for name, p2p, seq in launches:
        newest[name, p2p] = max(newest.get((name, p2p), 0), seq)
    settled: list[Operation] = []
    for (name, p2p, seq), members in launches.items():
        left_out = active_only and seq <= completed.get(name, -1)
        if _is_batch(members):
            # A batch's launch comes before anything else in the group; if it does not, the dump has left it out.
            settled += _settle(members, left_out or (active_only and seq < newest[name, p2p]))
        elif left_out and (name, p2p) in batching:
            settled += _settle(members, True)  # a batch of one
        else:
            settled += members
    return sorted(settled, key=lambda operation: operation.record_id)


def _with_their_launches(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations; a launch right after its sends and receives gets their kind and number."""
    found: list[Operation] = []
    last: dict[str, Operation] = {}
    for operation in operations:
        before = last.get(operation.group.name)
        if operation.op == COALESCED and before is not None and before.p2p and before.op != COALESCED:
            operation = msgspec.structs.replace(operation, p2p=True, seq=before.seq)  # noqa: PLW2901
        last[operation.group.name] = operation
        found.append(operation)
    return found


def _is_batch(members: Sequence[Operation]) -> bool:
    """True if these entries of one number are of one launch; never for Gloo, which has no launches."""
    return members[0].backend != "gloo" and (len(members) > 1 or members[0].op == COALESCED)


def _settle(members: Sequence[Operation], left_out: bool) -> list[Operation]:
    """Return one batch in the state of its launch. ``left_out``: the launch is not in the dump because it has completed."""
    inner = [member for member in members if member.op != COALESCED]
    if not inner:
        return list(members)
    launch = next((member for member in members if member.op == COALESCED), None)
    completed = launch.completed if launch is not None else left_out or all(member.completed for member in inner)
    started = completed or (launch.started if launch is not None else any(member.started for member in inner))
    if inner[0].p2p:
        return [msgspec.structs.replace(member, completed=completed, started=started) for member in inner]
    return [
        msgspec.structs.replace(
            inner[0],
            op=inner[0].op if len({member.op for member in inner}) == 1 else COALESCED,
            completed=completed,
            started=started,
            input_sizes=tuple(size for member in inner for size in member.input_sizes),
            output_sizes=tuple(size for member in inner for size in member.output_sizes),
            input_dtypes=tuple(dtype for member in inner for dtype in member.input_dtypes),
            output_dtypes=tuple(dtype for member in inner for dtype in member.output_dtypes),
        )
    ]
