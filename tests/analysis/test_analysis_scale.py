"""The analysis grows with what differs between ranks, and says of columns what it says of single operations."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.analysis.case import build_case
from hangwatch.analysis.operations.alignment import History
from hangwatch.analysis.operations.histories import condense, first_after, first_disagreement, histories_of
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.waiting.graph import find_sinks
from hangwatch.model.collectives import FlightRecord, Group, Operation, OperationColumns, in_flight
from hangwatch.model.numbers import guest_number, name_guests
from worlds import NOW_NS, operation, rank, world

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
GROUPS = (Group("0", (0, 1, 2, 3), "default_pg"), Group("1", (0, 1)), Group("2", (2, 3)))


@st.composite
def operations(draw: st.DrawFn) -> tuple[Operation, ...]:
    """One rank's record: a few kinds of operations, holes in the numbers, some of them in flight."""
    found: list[Operation] = []
    numbers: dict[str, int] = defaultdict(int)
    for record in range(draw(st.integers(0, 12))):
        group = draw(st.sampled_from(GROUPS))
        numbers[group.name] += draw(st.sampled_from((1, 1, 1, 2)))
        one = operation(
            record,
            group,
            numbers[group.name],
            draw(st.sampled_from(("all_reduce", "all_reduce", "broadcast"))),
            done=draw(st.booleans()),
            sizes=draw(st.sampled_from(((4,), (4,), (2, 3)))),
        )
        # What has completed has begun: a parser says so, and columns keep it in one word.
        begun = one.completed or one.started
        found.append(
            msgspec.structs.replace(one, p2p=draw(st.sampled_from((False, False, False, True))), started=begun)
        )
    return tuple(found)


@SETTINGS
@given(operations())
def test_columns_hold_what_was_put_into_them(record: tuple[Operation, ...]) -> None:
    """Every operation comes back whole; those in flight and the histories are the same for both forms."""
    columns = condense(record)
    assert tuple(columns) == record
    assert [columns[i] for i in range(len(columns))] == list(columns)
    assert in_flight(columns) == tuple(o for o in columns if not o.completed)
    assert sorted(histories_of(columns), key=lambda history: history.group) == sorted(
        histories_of(record), key=lambda history: history.group
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(columns), type=OperationColumns) == columns


@SETTINGS
@given(st.lists(operations(), min_size=1, max_size=4))
def test_the_first_difference_is_the_one_that_a_search_number_by_number_finds(
    records: list[tuple[Operation, ...]],
) -> None:
    """Whole histories compared at once give the number that comparing every operation gives."""
    for group in GROUPS:
        histories = [
            history for record in records for history in histories_of(condense(record)) if history.group == group
        ]
        here: dict[int, set[object]] = defaultdict(set)
        for record in records:
            seen: set[int] = set()
            for one in record:
                if one.group == group and not one.p2p and one.seq not in seen:
                    seen.add(one.seq)
                    here[one.seq].add(signature(one))
        assert first_disagreement(histories) == min(
            (seq for seq, kinds in here.items() if len(kinds) > 1), default=None
        )
        assert first_after(histories, 2) == min((seq for seq in here if seq > 2), default=None)


@SETTINGS
@given(st.lists(operations(), min_size=2, max_size=4))
def test_columns_give_the_case_that_single_operations_give(records: list[tuple[Operation, ...]]) -> None:
    """Blame, divergence and who waits for whom do not depend on how the operations are kept."""
    ranks = [rank(number, record) for number, record in enumerate(records)]
    columns = []
    for one in ranks:
        assert isinstance(one.flight, FlightRecord)
        flight = msgspec.structs.replace(one.flight, operations=condense(tuple(one.flight.operations)))
        columns.append(msgspec.structs.replace(one, flight=flight))
    ours, theirs = build_case(world(*columns)), build_case(world(*ranks))
    assert (ours.blame, ours.waits()) == (theirs.blame, theirs.waits())


@SETTINGS
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 7), min_size=1, max_size=4), st.lists(st.integers(0, 7), min_size=1, max_size=4)
        ),
        max_size=6,
    )
)
def test_sinks_of_edges_from_many_to_many_are_those_of_single_edges(edges: list[tuple[list[int], list[int]]]) -> None:
    """What the short form of the graph leads to is what the long form, an edge a pair, leads to."""
    single = [([w], [a]) for waiters, awaited in edges for w in waiters for a in awaited]
    assert find_sinks(edges) == find_sinks(single)


@pytest.mark.parametrize("size", [64, 512])
def test_the_graph_of_a_group_has_one_edge_a_reason(size: int) -> None:
    """All but one wait for one, or half for the other half: one edge, whatever the size."""
    group = Group("0", tuple(range(size)), "default_pg")
    for absent in (1, size // 2):
        ranks = [
            rank(number, (operation(0, group, 1), operation(1, group, 2, done=False))[: 1 if number < absent else 2])
            for number in range(size)
        ]
        graph = build_case(world(*ranks)).graph
        assert [(len(e.waiters), len(e.awaited), e.reason) for e in graph.edges] == [(size - absent, absent, "absent")]


def test_every_rank_brings_other_sizes_and_nobody_tells_them_all() -> None:
    """Each of many ranks gathers a tensor of its own size: one edge, and all of them are in the circle."""
    size = 100
    group = Group("0", tuple(range(size)), "default_pg")
    ranks = [rank(number, (operation(0, group, 1, done=False, sizes=(number + 1,)),)) for number in range(size)]
    case = build_case(world(*ranks))
    assert len(case.graph.edges) == 1
    assert case.graph.sinks == (tuple(range(size)),)
    assert case.waits() == (
        "ranks 0-99 wait in all_reduce of default_pg (sequence number 1) for ranks 0-99, "
        "which called it with tensors of other sizes",
    )


def test_alike_histories_are_kept_and_compared_once() -> None:
    """A thousand ranks with one history are one history to whoever compares them."""
    group = Group("0", tuple(range(1000)), "default_pg")
    record = condense([operation(number, group, number + 1) for number in range(50)])
    histories = [history for _ in range(1000) for history in record.histories]
    assert len({(s.start, s.marks) for history in histories for s in history.segments}) == 1
    assert first_disagreement(histories) is None


def test_a_group_is_known_by_a_short_key() -> None:
    """However many ranks it has; and the same for every process that names it."""
    large = Group("7", tuple(range(16384)), "default_pg")
    assert len(large.key) < 40
    assert large.key == Group("7", tuple(range(16384))).key
    assert large.key != Group("7", tuple(range(16383))).key


def test_operations_at_a_number_are_built_when_they_are_asked_for() -> None:
    """A rank that has none at that number is absent, as it is from a dictionary."""
    group = Group("0", (0, 1), "default_pg")
    ranks = [rank(0, (operation(0, group, 1), operation(1, group, 2))), rank(1, (operation(0, group, 1),))]
    history = History(ranks)
    here = history.at(group.key, 2)
    assert (list(here), len(here), 1 in here, here.get(1)) == ([0], 1, False, None)
    assert here[0].created_ns < NOW_NS
    assert history.at("nobody's", 1) == {}


def test_guests_are_named_behind_a_list_of_any_length() -> None:
    """If the list were read anew from each of its numbers, this would take an hour."""
    engine = guest_number("engine", 3)
    ranks = ",".join(map(str, range(0, 400_000, 2)))
    assert name_guests(f"ranks {ranks}", {}) == f"ranks {ranks}"
    assert name_guests(f"ranks {ranks},{engine}", {engine: "engine/3"}) == f"ranks {ranks} and engine/3"
