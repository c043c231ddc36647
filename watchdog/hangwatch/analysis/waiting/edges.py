"""Which rank waits for which, and why: builds the graph from what is seen of the ranks. Pure."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangwatch.analysis.operations.alignment import History
from hangwatch.analysis.operations.signatures import describe, signature
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.threads import is_engines
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import Wait, in_torch_distributed
from hangwatch.analysis.waiting.answers import answer_edges, find_departed
from hangwatch.analysis.waiting.graph import Edge, Reason, WaitGraph, find_sinks, has_circle
from hangwatch.analysis.waiting.stores import find_setters, names_one
from hangwatch.model.collectives import DEFAULT_GROUP, Group, Operation
from hangwatch.model.numbers import is_guest, same_world


def _members(group: Group, world: Sequence[int]) -> Sequence[int]:
    return group.ranks or (() if group.outside else tuple(world))


#: What has tensors of one size and type on every rank, whatever the backend.
_ALIKE = frozenset({"all_reduce", "reduce", "broadcast"})
#: Why a rank is awaited, and the operation it has instead.
_Finding = tuple[Reason, Operation | None]


def _why_awaited(
    operation: Operation, other: RankView | None, member: int, history: History, waiters_differ: bool
) -> _Finding | None:
    """Return why the ranks in ``operation`` wait for ``member``, with the operation it has instead; None if they do not.

    ``waiters_differ``: the waiters do not agree among themselves.
    """
    key, seq = operation.group.key, operation.seq
    called = history.at(key, seq).get(member)
    if called is not None and called.op != operation.op:
        return "mismatch", called
    if other is None:
        return "unseen", None
    if other.silent:  # even if it has joined: it is not known whether its half was sent
        return "silent", None
    if other.motion.state in {"lost", "stopped"} and (called is None or not called.completed):
        # Even if it had joined: its half of the transfer is not served any more.
        if other.gone and is_guest(member):  # an engine may be restarted by somebody who is not seen
            return "returning", None
        return ("gone" if other.gone else "stopped"), None
    enqueued = history.enqueued(member, key)
    if enqueued is None:
        joined = other.wait is not None and other.wait.op in {operation.op, "backward", "wait", "copy", "synchronize"}
        return None if joined else ("elsewhere", None)
    if enqueued < seq:
        return "absent", None
    if called is None:
        return None
    if called.completed:
        # Its half went into another operation, and nothing more comes of it.
        return ("sizes", called) if operation.op in _ALIKE and signature(called) != signature(operation) else None
    if waiters_differ or signature(called) != signature(operation):
        return "sizes", None if waiters_differ else called
    return ("queued", called) if _is_queued(other, called) else None


def _is_queued(view: RankView, operation: Operation) -> bool:
    """True if a rank has an operation behind another unfinished one, which has to end first."""
    front = view.frontier
    behind = front is not None and front.record_id < operation.record_id and operation in view.pending
    return behind and front is not None and _in_order(front, operation, view)


def _recorded_edges(
    waiters: Sequence[RankView], views: Mapping[int, RankView], history: History, world: Sequence[int]
) -> Iterator[Edge]:
    """Yield the edges of ranks that are in the same operation by the recorder."""
    operation = waiters[0].frontier
    if operation is None:
        return
    if _has_unknown_members(operation.group, waiters):
        yield _outside_edge(waiters, operation)
        return
    waiters_differ = any(v.frontier is not None and signature(v.frontier) != signature(operation) for v in waiters)
    found = (
        (member, why)
        for member in _members(operation.group, same_world(waiters[0].rank, world))
        if (why := _why_awaited(operation, views.get(member), member, history, waiters_differ)) is not None
    )
    # It is not known whom unknown members wait for: no circle may rest on such a group.
    outside = bool(operation.group.outside)
    unknown = outside or (not operation.group.ranks and operation.group.description != DEFAULT_GROUP)
    for edge in _edges(waiters, found, operation):
        weak = unknown or any(_knows_nothing_of(operation.group, views.get(member)) for member in edge.awaited)
        yield replace(edge, weak=weak)
    if outside:
        yield _outside_edge(waiters, operation)


def _has_unknown_members(group: Group, waiters: Iterable[RankView]) -> bool:
    """True if a group is not known to torch and its members are not listed: a library has made it (torchft, for each quorum).

    Then it is not even known whether two of its waiters are in the same one. False if torch hides the names of its own
    groups: it may be one of them.
    """
    return not group.name and not group.ranks and not any(view.capture.unrecorded for view in waiters)


def _knows_nothing_of(group: Group, other: RankView | None) -> bool:
    """True if a rank tells which groups it is in, and this one is missing: its place may be another process's.

    Or its record and its beat were read too early, or not in full: then it is not known what it has called there.
    """
    if other is None or other.capture.progress is None:
        return False
    flight = other.capture.flight
    # The beat of a rank that is leaving lists no groups.
    listed = other.capture.progress or (flight.progress if flight is not None else ())
    return all(p.group.name != group.name for p in listed)


def _outside_edge(waiters: Sequence[RankView], operation: Operation | None) -> Edge:
    """Return the edge of ranks that may be waiting for processes which are no ranks of this job."""
    wait = waiters[0].wait
    reason: Reason = "key" if operation is None and wait is not None and wait.kind == "store" else "outside"
    return Edge(tuple(sorted(view.rank for view in waiters)), (), reason, operation)


def _edges(
    waiters: Sequence[RankView], found: Iterable[tuple[int, _Finding]], operation: Operation | None
) -> Iterator[Edge]:
    """Yield one edge for each reason and each kind of operation that is there instead."""
    ranks = tuple(sorted(view.rank for view in waiters))
    kinds: dict[tuple[Reason, str], list[int]] = {}
    others: dict[tuple[Reason, str], Operation | None] = {}
    for member, (reason, other) in found:
        key = (reason, describe(other) if other is not None and reason in {"mismatch", "sizes"} else "")
        kinds.setdefault(key, []).append(member)
        others.setdefault(key, other)
    for key, awaited in kinds.items():
        yield Edge(ranks, tuple(sorted(awaited)), key[0], operation, others[key])


#: With more kinds of tensors than this in one operation, the kinds are not told apart: every rank waits for every other.
_SIZES_TOLD = 32


def _waiting_alike(views: Iterable[RankView]) -> list[list[RankView]]:
    """Return the ranks in lists that wait for the same others for the same reasons."""
    found: dict[Hashable, dict[Hashable, list[RankView]]] = {}
    for view in views:
        front, wait = view.frontier, view.wait
        if front is not None and not front.p2p:
            found.setdefault((front.group.key, front.seq, front.op), {}).setdefault(signature(front), []).append(view)
        elif front is not None or wait is None or wait.kind == "point_to_point" or wait.outside:
            found[view.rank] = {None: [view]}  # a wait of its own, for its own peer
        else:
            creates = wait.kind == "group_creation" and view.rank in wait.peers
            shared = (wait.kind, wait.op, wait.exact, wait.peers, wait.group, creates)
            port = view.meets_at if wait.kind == "initialization" else None
            state = (view.capture.groups_created, view.motion.state == "stuck", port, wait.connecting, view.store)
            found.setdefault((*shared, *state), {}).setdefault(None, []).append(view)
    return [
        company
        for by_kind in found.values()
        for company in (
            by_kind.values() if len(by_kind) <= _SIZES_TOLD else [[v for own in by_kind.values() for v in own]]
        )
    ]


_EXCHANGE = ({"exchange"}, {"exchange", "send"}, {"exchange", "recv"})


def _p2p_edges(
    view: RankView, views: Mapping[int, RankView], op: str, peers: Iterable[int], operation: Operation | None
) -> Iterator[Edge]:
    opposite = {"send": "recv", "recv": "send"}.get(op)

    def why(other: RankView | None) -> _Finding | None:
        if other is None or other.silent:
            return "unseen" if other is None else "silent", None
        recorded = next((o for o in other.pending if o.p2p and o.op == opposite and o.peer == view.rank), None)
        if recorded is not None:
            return ("queued", recorded) if _is_blocked_before(recorded, other) else None
        facing = other.wait is not None and (not other.wait.peers or view.rank in other.wait.peers)
        other_op = other.wait.op if other.wait is not None and facing else None
        # A pipeline's stage may send and receive in one batch, and it is not known which of them is still to come.
        meets = other_op is not None and (other_op == opposite or {op, other_op} in _EXCHANGE)
        if meets and view.wait is not None and other.wait is not None and operation is None:
            tags, groups = {view.wait.tag, other.wait.tag}, {view.wait.group, other.wait.group}
            meets = (None in tags or len(tags) == 1) and ("" in groups or len(groups) == 1)
        return None if meets else (("gone" if other.gone else "peer"), None)

    found = ((peer, finding) for peer in peers if (finding := why(views.get(peer))) is not None)
    for edge in _edges([view], found, operation):
        queued = edge.reason == "queued"
        weak = queued and not _is_behind_on_device(edge.other, views.get(edge.awaited[0]))
        yield replace(edge, weak=weak, proves=not queued)


def _in_order(front: Operation, later: Operation, other: RankView) -> bool:
    """True if two operations of a rank run one after the other, as far as is known: those of two threads are in no order.

    A thread waits for the backward pass that it began, so what the engine's thread calls is in order with what it calls
    itself.
    """
    if front.thread == later.thread or not (front.thread and later.thread):
        return True
    return is_engines(other.taken, front) or is_engines(other.taken, later)


def _is_blocked_before(matching: Operation, other: RankView) -> bool:
    """True if the peer's ``matching`` operation is behind one that the peer is likely to wait for.

    That is a collective or a receive: the program goes on with its result. Sends to others are on their way by
    themselves, but on NCCL they are on a device in some order as well.
    """
    front = other.frontier
    if (
        front is None
        or front.record_id >= matching.record_id
        or _in_one_batch(front, matching)
        or not _in_order(front, matching, other)
    ):
        return False
    return not front.p2p or front.op == "recv" or front.backend == "nccl"


#: Functions that launch sends and receives together, and those that make what comes behind them wait.
_BATCH, _BLOCKING = frozenset({"batch_isend_irecv"}), frozenset({"send", "recv"})


def _is_behind_on_device(matching: Operation | None, other: RankView | None) -> bool:
    """True if the peer's matching operation is behind the one that the peer is in on NCCL: on one stream, or by program order.

    Two ranks have a communicator and a stream of their own, whatever stream the program is on (``pointToPoint`` of
    torch's ``ProcessGroupNCCL.cpp``); a batch has the group's. ``dist.send`` and ``dist.recv`` make the program's
    stream wait, and what is called behind them with it. The program may have several streams, so none of this is a
    proof.
    """
    front = other.frontier if other is not None else None
    if (
        matching is None
        or front is None
        or matching.backend != "nccl"
        or not front.p2p
        or front.group != matching.group
    ):
        return False
    batches = all(_is_called_by(o, _BATCH) for o in (front, matching))
    return front.peer == matching.peer or batches or _is_called_by(front, _BLOCKING)


def _is_called_by(operation: Operation, names: Container[str]) -> bool:
    """True if a function of torch.distributed with one of these names is on the call path of an operation."""
    return any(bare(f) in names and in_torch_distributed(f) for f in operation.frames or ())


def _in_one_batch(one: Operation, other: Operation) -> bool:
    """True if two point-to-point operations of a rank were launched together: they have one number."""
    return one.p2p and other.p2p and one.seq == other.seq and one.group.key == other.group.key


def _create_different_groups(view: RankView, other: RankView) -> bool:
    """True if both are creating a group, and not the same one: each process numbers groups as they come."""
    one, two = view.wait, other.wait
    if one is None or two is None or {one.kind, two.kind} != {"group_creation"}:
        return False
    # A group of all ranks lists no members. Those of a split are not known (not exact), and its name alone says nothing.
    if one.peers == two.peers and one.exact and two.exact and one.group and two.group:
        return one.group != two.group
    if one.peers and two.peers:
        return one.peers != two.peers
    counts = (view.capture.groups_created, other.capture.groups_created)
    return None not in counts and counts[0] != counts[1]


def _whereabouts(other: RankView | None) -> Reason:
    if other is None:
        return "unseen"
    if other.silent:
        return "silent"
    return "gone" if other.gone else "stopped" if other.motion.state == "stopped" else "elsewhere"


def _misses_rendezvous(view: RankView, other: RankView) -> bool:
    """True if ``other`` is not where ``view`` waits for it in initialization, though it may be initializing itself.

    A rank that has not reached a store yet waits for its host alone.
    """
    ports = {view.meets_at, other.meets_at}
    differ = None not in ports and len(ports) > 1
    connects = other.wait is not None and other.wait.connecting
    if view.wait is not None and view.wait.connecting:
        hosts = other.wait is not None and other.wait.port is not None and not connects
        return hosts and differ
    return connects or differ


def _is_of_an_earlier_world(other: RankView) -> bool:
    """True if a rank still has the world before the one that another rank is initializing, as after an error.

    No collective of the new world can have completed before that rank is in it.
    """
    return any(p.completed > 0 for p in other.capture.world_progress)


def _stack_edges(waiters: Sequence[RankView], views: Mapping[int, RankView], world: Sequence[int]) -> Iterator[Edge]:
    """Yield the edges of ranks in one wait that no recorder shows: stores, group creation, initialization, backward."""
    view = waiters[0]
    wait = view.wait
    if wait is None or (wait.kind in {"device", "backward", "work"} and view.motion.state != "stuck"):
        return
    # A group is created by its members, and by them alone.
    among = wait.kind in {"group_creation", "collective", "communicator"} and view.rank in wait.peers
    needed = wait.peers if among else same_world(view.rank, world)
    if wait.kind == "store":
        needed = find_setters(view, views, world)
    inside = {v.rank for v in waiters}
    missing: list[tuple[int, _Finding]] = [
        (member, (reason, None))
        for member in needed
        if member not in inside and (reason := _why_missing(view, wait, views.get(member))) is not None
    ]
    if view.store is not None and not names_one([member for member, _ in missing]):
        yield Edge(tuple(sorted(inside)), (), "key", None)
    elif view.store is not None and not missing and len(inside) < len(same_world(view.rank, world)):
        departed = find_departed(views) if not view.unseen_clients else None
        awaited = (departed,) if departed is not None else ()
        yield Edge(tuple(sorted(inside)), awaited, "returning" if awaited else "key", None, weak=True)
    else:
        for edge in _edges(waiters, missing, None):
            yield replace(edge, proves=wait.kind != "store")  # a process that was not seen may set the key


def _why_missing(view: RankView, wait: Wait, other: RankView | None) -> Reason | None:
    """Return why ``view``, in this ``wait``, still waits for another rank; None if that one has joined it."""
    if other is not None and _has_joined(view, wait, other):
        return None
    reason = "creation" if other is not None and _create_different_groups(view, other) else _whereabouts(other)
    if wait.kind == "initialization" and other is not None and other.returning:
        reason = "returning"  # torchrun starts a world rank by rank, and a start may fail
    if not wait.exact or (wait.kind == "work" and reason == "elsewhere"):
        reason = "possible"  # even if that rank is gone it proves nothing
    return reason


def _has_joined(view: RankView, wait: Wait, other: RankView) -> bool:
    other_wait = other.wait
    if wait.kind == "initialization":
        here = bool(other.capture.progress) or (other_wait is not None and other_wait.kind == "initialization")
        return here and not _misses_rendezvous(view, other) and not _is_of_an_earlier_world(other)
    if other_wait is None or other_wait.outside or (other_wait.kind, other_wait.op) != (wait.kind, wait.op):
        return False
    alike = None in {view.store, other.store} or view.store == other.store
    return alike and other.motion.state != "stopped" and not _create_different_groups(view, other)


def build_graph(
    views: Mapping[int, RankView],
    history: History,
    world: Sequence[int],
    waiting: Container[int],
    answers: Mapping[int, int],
) -> WaitGraph:
    """Return the graph over ``world`` (all processes of the job).

    ``waiting``: the ranks whose waits for other ranks count. ``answers``: whom a rank awaits an answer from.
    """
    edges: list[Edge] = list(answer_edges(answers, views))
    for waiters in _waiting_alike(view for rank, view in views.items() if rank in waiting):
        front, wait = waiters[0].frontier, waiters[0].wait
        if front is not None and front.p2p:
            edges += _batch_edges(waiters, views, front)
        elif front is not None:
            edges += _recorded_edges(waiters, views, history, world)
        elif wait is not None and wait.outside:
            edges.append(_outside_edge(waiters, None))
        elif wait is not None and wait.kind == "point_to_point":
            edges += _p2p_edges(waiters[0], views, wait.op, wait.peers, None)
        else:
            edges += _stack_edges(waiters, views, world)
    graph = _make_graph(edges)
    if any(len(sink) > 1 and not _is_sure(graph, sink) for sink in graph.sinks):
        graph = _make_graph([edge for edge in edges if not edge.weak])
    return graph


def _batch_edges(waiters: Sequence[RankView], views: Mapping[int, RankView], front: Operation) -> Iterator[Edge]:
    """Yield the edges of all sends and receives that were launched with the first pending one."""
    batch = [o for o in waiters[0].pending if _in_one_batch(o, front)]
    for one in batch:
        if one.peer is not None:
            yield from _p2p_edges(waiters[0], views, one.op, (one.peer,), one)
    if any(o.peer is None and o.group.outside for o in batch):
        yield _outside_edge(waiters, front)


def _is_sure(graph: WaitGraph, sink: Sequence[int]) -> bool:
    """True if a sink has a circle without weak edges, or one of answers alone; then others may hang on it by weak edges."""
    within = graph.within(sink)
    if all(e.reason == "answer" for e in within):
        return True  # each is blocked in the middle of its program, on what the next one has to send
    return not any(e.weak for e in within) or has_circle([(e.waiters, e.awaited) for e in within if not e.weak])


def _make_graph(edges: Sequence[Edge]) -> WaitGraph:
    return WaitGraph(tuple(edges), find_sinks([(e.waiters, e.awaited) for e in edges]))
