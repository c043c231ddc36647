"""Which rank waits for which, and why: the graph from what is seen of the ranks. Its sinks hold everybody up. Pure."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangwatch.analysis.operations.alignment import History
from hangwatch.analysis.operations.signatures import describe, signature
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.threads import is_engines
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import in_torch_distributed
from hangwatch.analysis.waiting.answers import answer_edges, find_departed
from hangwatch.analysis.waiting.graph import Edge, Reason, WaitGraph
from hangwatch.analysis.waiting.sinks import find_sinks, has_circle
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
    operation: Operation, other: RankView | None, m: int, history: History, apart: bool
) -> _Finding | None:
    """Why those in ``operation`` wait for member ``m``, if they do. ``apart``: they do not agree among themselves."""
    key, seq = operation.group.key, operation.seq
    theirs = history.at(key, seq).get(m)
    if theirs is not None and theirs.op != operation.op:
        return "mismatch", theirs
    if other is None:
        return "unseen", None
    if other.silent:  # also where it has joined: whether its half of the transfer has left it is not known
        return "silent", None
    if other.motion.state in {"lost", "stopped"} and (theirs is None or not theirs.completed):
        # Even if it had joined: its half of the transfer is not served any more.
        if other.gone and is_guest(m):  # an engine may be started anew, and nobody says who would do it
            return "returning", None
        return ("gone" if other.gone else "stopped"), None
    enqueued = history.enqueued(m, key)
    if enqueued is None:
        joined = other.wait is not None and other.wait.op in {operation.op, "backward", "wait", "copy", "synchronize"}
        return None if joined else ("elsewhere", None)
    if enqueued < seq:
        return "absent", None
    if theirs is None:
        return None
    if theirs.completed:
        # Its half was another one's, and nothing more comes of it.
        return ("sizes", theirs) if operation.op in _ALIKE and signature(theirs) != signature(operation) else None
    if apart or signature(theirs) != signature(operation):
        return "sizes", None if apart else theirs
    front = other.frontier
    if (
        front is not None
        and front.record_id < theirs.record_id
        and theirs in other.pending
        and _in_order(front, theirs, other)
    ):
        return "queued", theirs
    return None


def _recorded_edges(
    waiters: Sequence[RankView], views: Mapping[int, RankView], history: History, world: Sequence[int]
) -> Iterator[Edge]:
    """The edges of ranks that are in the same operation by the recorder."""
    operation = waiters[0].frontier
    if operation is None:
        return
    if _is_of_no_list(operation.group, waiters):
        yield _outside(waiters, operation)
        return
    apart = any(v.frontier is not None and signature(v.frontier) != signature(operation) for v in waiters)
    found = (
        (m, why)
        for m in _members(operation.group, same_world(waiters[0].rank, world))
        if (why := _why_awaited(operation, views.get(m), m, history, apart)) is not None
    )
    # Whom unknown members wait for is not known either: no circle rests on such a group.
    outside = bool(operation.group.outside)
    unknown = outside or (not operation.group.ranks and operation.group.description != DEFAULT_GROUP)
    for edge in _edges(waiters, found, operation):
        weak = unknown or any(_knows_nothing_of(operation.group, views.get(m)) for m in edge.awaited)
        yield replace(edge, weak=weak)
    if outside:
        yield _outside(waiters, operation)


def _is_of_no_list(group: Group, waiters: Iterable[RankView]) -> bool:
    """Whether a group is none of torch's: a library has made it itself, and who is in it nobody says (torchft, for each quorum).

    Not even whether two of its waiters are in the same one. Where torch hides the names of its own groups it may be one of them.
    """
    return not group.name and not group.ranks and not any(view.capture.unrecorded for view in waiters)


def _knows_nothing_of(group: Group, other: RankView | None) -> bool:
    """Whether a rank says which groups it is in, and this is none of them: its place may be another process's.

    Or its record and its beat were read before it was in any, or not in full: what it has called there is not known.
    """
    if other is None or other.capture.progress is None:
        return False
    flight = other.capture.flight
    # The beat of one that leaves has none.
    listed = other.capture.progress or (flight.progress if flight is not None else ())
    return all(p.group.name != group.name for p in listed)


def _outside(waiters: Sequence[RankView], operation: Operation | None) -> Edge:
    """The edge of ranks that may be waiting for processes which are no ranks of this job."""
    wait = waiters[0].wait
    reason: Reason = "key" if operation is None and wait is not None and wait.kind == "store" else "outside"
    return Edge(tuple(sorted(view.rank for view in waiters)), (), reason, operation)


def _edges(
    waiters: Sequence[RankView], found: Iterable[tuple[int, _Finding]], operation: Operation | None
) -> Iterator[Edge]:
    """One edge a reason, and a kind of operation that is there instead."""
    ranks = tuple(sorted(view.rank for view in waiters))
    kinds: dict[tuple[Reason, str], list[int]] = {}
    others: dict[tuple[Reason, str], Operation | None] = {}
    for m, (reason, other) in found:
        key = (reason, describe(other) if other is not None and reason in {"mismatch", "sizes"} else "")
        kinds.setdefault(key, []).append(m)
        others.setdefault(key, other)
    for key, awaited in kinds.items():
        yield Edge(ranks, tuple(sorted(awaited)), key[0], operation, others[key])


#: Of more kinds of tensors than this in one operation, who brought which is not listed: every rank waits for every other.
_SIZES_TOLD = 32


def _companies(views: Iterable[RankView]) -> list[list[RankView]]:
    """The ranks that wait for the same others for the same reasons."""
    found: dict[Hashable, dict[Hashable, list[RankView]]] = {}
    for view in views:
        front, wait = view.frontier, view.wait
        if front is not None and not front.p2p:
            found.setdefault((front.group.key, front.seq, front.op), {}).setdefault(signature(front), []).append(view)
        elif front is not None or wait is None or wait.kind == "point_to_point" or wait.outside:
            found[view.rank] = {None: [view]}  # its own wait, for a peer of its own
        else:
            creates = wait.kind == "group_creation" and view.rank in wait.peers
            shared = (wait.kind, wait.op, wait.exact, wait.peers, wait.group, creates)
            port = view.meets_at if wait.kind == "initialization" else None
            state = (view.capture.groups_created, view.motion.state == "stuck", port, wait.connecting, view.store)
            found.setdefault((*shared, *state), {}).setdefault(None, []).append(view)
    return [
        company
        for apart in found.values()
        for company in (apart.values() if len(apart) <= _SIZES_TOLD else [[v for own in apart.values() for v in own]])
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
        theirs = other.wait.op if other.wait is not None and facing else None
        # A pipeline's stage may send and receive in one batch, of which it is not known what is still to come.
        meets = theirs is not None and (theirs == opposite or {op, theirs} in _EXCHANGE)
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
    """Whether one waits for the other on its rank, as far as is known: what two threads call is in no order.

    A thread waits for the backward pass that it began, so what the engine's thread calls is in order with what it calls itself.
    """
    if front.thread == later.thread or not (front.thread and later.thread):
        return True
    return is_engines(other.taken, front) or is_engines(other.taken, later)


def _is_blocked_before(theirs: Operation, other: RankView) -> bool:
    """Whether the other half stands behind an operation that it is likely to wait for.

    A collective, or what is received: the program goes on with it. Sends to others are on their way by themselves, but for
    those of NCCL, which are on a device in some order as well.
    """
    front = other.frontier
    if (
        front is None
        or front.record_id >= theirs.record_id
        or _one_batch(front, theirs)
        or not _in_order(front, theirs, other)
    ):
        return False
    return not front.p2p or front.op == "recv" or front.backend == "nccl"


#: What launches sends and receives together, and what makes all that comes behind it wait.
_BATCH, _BLOCKING = frozenset({"batch_isend_irecv"}), frozenset({"send", "recv"})


def _is_behind_on_device(theirs: Operation | None, other: RankView | None) -> bool:
    """Whether the other half is behind what its rank is in, as NCCL has it: on one stream, or by order of the program.

    Two ranks have a communicator and a stream of their own, whatever stream the program is on (``pointToPoint`` of torch's
    ``ProcessGroupNCCL.cpp``), but for a batch, which has the group's. ``dist.send`` and ``dist.recv`` make the program's stream
    wait, and what is called behind them with it. The program may have several streams, so none of this is a proof.
    """
    front = other.frontier if other is not None else None
    if theirs is None or front is None or theirs.backend != "nccl" or not front.p2p or front.group != theirs.group:
        return False
    batches = all(_is_called_by(o, _BATCH) for o in (front, theirs))
    return front.peer == theirs.peer or batches or _is_called_by(front, _BLOCKING)


def _is_called_by(operation: Operation, names: Container[str]) -> bool:
    """Whether a function of torch.distributed of such a name is on the way to an operation."""
    return any(bare(f) in names and in_torch_distributed(f) for f in operation.frames or ())


def _one_batch(one: Operation, other: Operation) -> bool:
    """Whether two point-to-point operations of a rank were launched together: they have one number."""
    return one.p2p and other.p2p and one.seq == other.seq and one.group.key == other.group.key


def _create_apart(view: RankView, other: RankView) -> bool:
    """Whether both are creating a group, and not the same one: groups are numbered in each process as they come."""
    one, two = view.wait, other.wait
    if one is None or two is None or {one.kind, two.kind} != {"group_creation"}:
        return False
    # Of a group of everybody no members are listed. Of a split they are not known (not exact), and its name alone says nothing.
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


def _meet_apart(view: RankView, other: RankView) -> bool:
    """Whether ``other`` is not where ``view`` waits for it in initialization, though it may be there itself.

    Who has not reached a store yet waits for its host alone.
    """
    ports = {view.meets_at, other.meets_at}
    differ = None not in ports and len(ports) > 1
    connects = other.wait is not None and other.wait.connecting
    if view.wait is not None and view.wait.connecting:
        hosts = other.wait is not None and other.wait.port is not None and not connects
        return hosts and differ
    return connects or differ


def _is_of_an_earlier_world(other: RankView) -> bool:
    """Whether a rank still has the world before the one whose initialization another one is in, as after an error.

    No collective of the new one can have completed before that rank is in it, too.
    """
    return any(p.completed > 0 for p in other.capture.world_progress)


def _stack_edges(waiters: Sequence[RankView], views: Mapping[int, RankView], world: Sequence[int]) -> Iterator[Edge]:
    """Edges of ranks that are in one wait which no recorder shows: stores, group creation, initialisation, backward."""
    view = waiters[0]
    wait = view.wait
    if wait is None or (wait.kind in {"device", "backward", "work"} and view.motion.state != "stuck"):
        return

    def why(m: int) -> _Finding | None:
        other = views.get(m)
        if other is not None and joined(other):
            return None
        reason = "creation" if other is not None and _create_apart(view, other) else _whereabouts(other)
        if wait.kind == "initialization" and other is not None and other.returning:
            reason = "returning"  # torchrun starts a world rank by rank, and some starts of it fail
        if not wait.exact or (wait.kind == "work" and reason == "elsewhere"):
            reason = "possible"  # nor is it a proof where that rank is gone
        return reason, None

    def joined(other: RankView) -> bool:
        if wait.kind == "initialization":
            if _meet_apart(view, other) or _is_of_an_earlier_world(other):
                return False
            return bool(other.capture.progress) or (other.wait is not None and other.wait.kind == "initialization")
        alike = other.wait is not None and other.wait.kind == wait.kind and other.wait.op == wait.op
        alike = alike and other.wait is not None and not other.wait.outside
        alike = alike and (None in {view.store, other.store} or view.store == other.store)
        return alike and other.motion.state != "stopped" and not _create_apart(view, other)

    # A group is created by its members, and by them alone.
    among = wait.kind in {"group_creation", "collective", "communicator"} and view.rank in wait.peers
    needed = wait.peers if among else same_world(view.rank, world)
    if wait.kind == "store":
        needed = find_setters(view, views, world)
    inside = {v.rank for v in waiters}
    missing = [(m, found) for m in needed if m not in inside and (found := why(m)) is not None]
    if view.store is not None and not names_one([m for m, _ in missing]):
        yield Edge(tuple(sorted(inside)), (), "key", None)
    elif view.store is not None and not missing and len(inside) < len(same_world(view.rank, world)):
        departed = find_departed(views)
        lost = departed is not None and not view.unseen_clients
        awaited = (departed,) if departed is not None and lost else ()
        yield Edge(tuple(sorted(inside)), awaited, "returning" if awaited else "key", None, weak=True)
    else:
        for edge in _edges(waiters, missing, None):
            yield replace(edge, proves=wait.kind != "store")  # a process that was not seen may set the key


def build_graph(
    views: Mapping[int, RankView],
    history: History,
    world: Sequence[int],
    waiting: Container[int],
    answers: Mapping[int, int],
) -> WaitGraph:
    """The graph over ``world`` (all processes of the job).

    ``waiting``: the ranks whose waits for other ranks count, ``answers``: whom a rank awaits an answer from.
    """
    edges: list[Edge] = list(answer_edges(answers, views))
    for waiters in _companies(view for rank, view in views.items() if rank in waiting):
        view = waiters[0]
        front, wait = view.frontier, view.wait
        if front is not None and front.p2p:
            for one in (o for o in view.pending if o.peer is not None and _one_batch(o, front)):
                edges += _p2p_edges(view, views, one.op, (one.peer,) if one.peer is not None else (), one)
            if any(o.peer is None and o.group.outside for o in view.pending if _one_batch(o, front)):
                edges.append(_outside(waiters, front))
        elif front is not None:
            edges += _recorded_edges(waiters, views, history, world)
        elif wait is not None and wait.outside:
            edges.append(_outside(waiters, None))
        elif wait is not None and wait.kind == "point_to_point":
            edges += _p2p_edges(view, views, wait.op, wait.peers, None)
        else:
            edges += _stack_edges(waiters, views, world)
    graph = _make_graph(edges)
    if any(len(sink) > 1 and not _is_sure(graph, sink) for sink in graph.sinks):
        graph = _make_graph([edge for edge in edges if not edge.weak])
    return graph


def _is_sure(graph: WaitGraph, sink: Sequence[int]) -> bool:
    """Whether ranks wait for each other in a circle without likelihoods, or of answers alone: others may be in it by one."""
    within = graph.within(sink)
    if all(e.reason == "answer" for e in within):
        return True  # each is in the middle of its program, and blocked on what the next one has
    return not any(e.weak for e in within) or has_circle([(e.waiters, e.awaited) for e in within if not e.weak])


def _make_graph(edges: Sequence[Edge]) -> WaitGraph:
    return WaitGraph(tuple(edges), find_sinks([(e.waiters, e.awaited) for e in edges]))
