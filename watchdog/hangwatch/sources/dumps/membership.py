"""Adds the members of groups that dumps do not tell (Gloo's never do). Pure; may import hangwatch.model.

The default group has every rank. Of another group only the ranks that used it are known; a rank that never did might
belong to it too, but this is not guessed. Ranks that create their groups in the same order give them the same names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.collectives import DEFAULT_GROUP, FlightRecord, Group, GroupHistory, Operation, OperationColumns
from hangwatch.model.text import format_ranks


def complete_groups(
    flights: Mapping[int, FlightRecord], world: Sequence[int]
) -> tuple[dict[int, FlightRecord], tuple[Gap, ...]]:
    """Return the records with members in every group, and gaps that say what was assumed."""
    users: dict[str, set[int]] = defaultdict(set)
    nameless: dict[str, Group] = {}
    for rank, flight in flights.items():
        for group in groups_of(flight):
            if not group.ranks:
                users[group.name].add(rank)
                nameless[group.name] = group
    if not nameless:
        return dict(flights), ()
    members = {
        name: tuple(world) if group.description == DEFAULT_GROUP else tuple(sorted(users[name]))
        for name, group in nameless.items()
    }
    guessed = sorted(
        (name for name in members if nameless[name].description != DEFAULT_GROUP), key=lambda n: (len(n), n)
    )
    gaps = tuple(
        Gap(
            "flight recorder",
            (
                f"the dumps do not list the members of {nameless[name].label}; assumed to be the ranks "
                f"that used it, {format_ranks(members[name])}"
            ),
        )
        for name in guessed
    )
    return {rank: _regroup(flight, members) for rank, flight in flights.items()}, gaps


def groups_of(flight: FlightRecord) -> list[Group]:
    """Return all groups that occur in a record."""
    operations = flight.operations
    if isinstance(operations, OperationColumns):
        found = {kind.group.key: kind.group for kind in operations.kinds}
    else:
        found = {operation.group.key: operation.group for operation in operations}
    return [*(found | {progress.group.key: progress.group for progress in flight.progress}).values()]


def _regroup(flight: FlightRecord, members: Mapping[str, tuple[int, ...]]) -> FlightRecord:
    made: dict[Group, Group] = {}

    def complete(group: Group) -> Group:
        if group not in made:
            ranks = group.ranks or members.get(group.name, ())
            made[group] = Group(group.name, ranks, group.description)
        return made[group]

    def regroup(operation: Operation) -> Operation:
        group = complete(operation.group)
        return operation if operation.group is group else msgspec.structs.replace(operation, group=group)

    operations = flight.operations
    if isinstance(operations, OperationColumns):
        histories = tuple(GroupHistory(complete(history.group), history.segments) for history in operations.histories)
        kinds = tuple(regroup(kind) for kind in operations.kinds)
        changed: tuple[Operation, ...] | OperationColumns = msgspec.structs.replace(
            operations, kinds=kinds, histories=histories
        )
    else:
        changed = tuple(regroup(operation) for operation in operations)
    progress = tuple(msgspec.structs.replace(one, group=complete(one.group)) for one in flight.progress)
    return msgspec.structs.replace(flight, operations=changed, progress=progress)
