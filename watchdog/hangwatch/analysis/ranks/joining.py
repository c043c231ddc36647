"""All ranks side by side: each from the thread that the others wait for, where that is not the one it shows by itself. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from hangwatch.analysis.ranks.motion import read_motion
from hangwatch.analysis.ranks.stores import with_outside_stores
from hangwatch.analysis.ranks.threads import (
    find_joining,
    find_thread,
    last_called,
    main_of,
    program_part,
    side_threads,
    threads_of,
)
from hangwatch.analysis.ranks.views import RankView, pending_of, view_from, view_rank
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Operation
from hangwatch.model.stacks import ThreadStack

#: Threads that are not looked at, by rank (``ThreadStack.ident``).
Aside = Mapping[int, frozenset[int]]
NONE_ASIDE: Aside = MappingProxyType({})


@dataclass(frozen=True)
class _Front:
    """A collective that some ranks are in, its members, and the parts of the program from which they called it."""

    operation: Operation
    members: frozenset[int]
    parts: frozenset[tuple[str, str]]


def view_ranks(
    capture: Capture,
    since_ns: int = 0,
    known: Mapping[int, RankView] = MappingProxyType({}),
    aside: Aside = NONE_ASIDE,
) -> Mapping[int, RankView]:
    """All ranks of the capture, by global rank. Views that are ``known`` stand where they are of the very same rank capture.

    ``aside``: threads of ranks that are not looked at.
    """
    silent = {rank for node in capture.silent for rank in node.ranks}

    def view(one: RankCapture) -> RankView:
        found = known.get(one.rank)
        same = found is not None and found.taken is one and not found.joining
        return found if same and found is not None else view_rank(one, since_ns, aside.get(one.rank, ()))

    views = {c.rank: view(c) for c in sorted(capture.ranks, key=lambda c: c.rank)}
    if any(v.side_threads for v in views.values()):
        views = _from_joining_threads(views, since_ns, aside)
    views = with_outside_stores(_moving_since_others_wait(views, since_ns))
    return {r: replace(v, silent=True) if r in silent else v for r, v in views.items()}


def _moving_since_others_wait(views: Mapping[int, RankView], since_ns: int) -> dict[int, RankView]:
    """The views, where what a rank did before any other waited is no motion of it: it may still have been in its last step.

    A sample of then may be within the window: on a busy machine they are seconds apart.
    """
    began = [v.pending[0].created_ns for v in views.values() if v.pending]
    if not began:
        return dict(views)

    def again(view: RankView) -> RankView:
        if view.motion.state != "busy" or view.pending or view.wait is not None:
            return view
        return replace(view, motion=read_motion(view.capture, since_ns, began_ns=min(began)))

    return {r: again(v) for r, v in views.items()}


def _from_joining_threads(views: Mapping[int, RankView], since_ns: int, aside: Aside) -> dict[int, RankView]:
    fronts = _fronts(views.values())
    found = dict(views)
    awaited: set[tuple[str, int]] = set()
    for rank, view in views.items():
        if view.side_threads and not view.gone:
            found[rank], front = _joining_view(view, fronts, since_ns, aside.get(rank, frozenset()))
            awaited |= {_key(front.operation)} if front is not None else set()
    return {rank: _calling_view(view, awaited, since_ns) for rank, view in found.items()}


def _key(operation: Operation) -> tuple[str, int]:
    return operation.group.key, operation.seq


def _fronts(views: Iterable[RankView]) -> list[_Front]:
    """The collectives that ranks are in, the oldest first."""
    operations: dict[tuple[str, int], Operation] = {}
    parts: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for view in views:
        front = view.frontier
        if front is not None and not front.p2p:
            operations.setdefault(_key(front), front)
            part = program_part(caller) if (caller := _caller(view, front)) is not None else None
            parts.setdefault(_key(front), set()).update([part] if part is not None else ())
    ordered = sorted(operations.values(), key=lambda o: o.created_ns)
    return [_Front(o, frozenset(o.group.ranks), frozenset(parts[_key(o)])) for o in ordered]


def _caller(view: RankView, front: Operation) -> ThreadStack | None:
    """The thread that called what a rank is in, where that is recorded; else the one that its view is of."""
    return find_thread(threads_of(view.taken), front.thread) or main_of(view.threads)


def _joining_view(
    view: RankView, fronts: Iterable[_Front], since_ns: int, aside: Container[int]
) -> tuple[RankView, _Front | None]:
    """The rank seen from the thread that others wait for, and where they do, if that is another one than its view is of.

    It is not for the others that the rank waits as long as that thread could still come. One that may itself wait, for another
    thread of its rank perhaps, changes nothing of a rank that waits.
    """
    front, last = _awaited(view, fronts)
    joining = find_joining(view.taken, last, front.parts) if front is not None else None
    if joining is None or joining.ident in aside:
        return view, None
    thread = None if joining.is_main else joining
    if _number(thread) == _number(view.thread) or (thread is None and view.asks):
        return view, None  # the main thread waits for that one, which asks another process
    # What the main thread has in flight is in the way of its backward pass, whose hooks run in a thread of the engine.
    backward = view.wait is not None and view.wait.kind == "backward"
    others = {t.ident for t in threads_of(view.taken) if t is not joining and t.ident and not (backward and t.is_main)}
    pending = pending_of(view.taken, others)
    found = view_from(view.taken, thread, pending, since_ns, joining=True)
    waits = view.wait is not None or view.frontier is not None
    keeps = waits and not (found.waits_for_no_rank or found.wait is not None)
    return (view, None) if keeps else (found, front)


def _awaited(view: RankView, fronts: Iterable[_Front]) -> tuple[_Front | None, Operation | None]:
    """The oldest operation that others are in and this rank has not called, and what it called last in that group."""
    for front in fronts:
        if view.rank in front.members:
            last = last_called(view.taken, front.operation.group.key)
            if last is None or last.seq < front.operation.seq:
                return front, last
    return None, None


def _calling_view(view: RankView, awaited: Container[tuple[str, int]], since_ns: int) -> RankView:
    """The rank seen from the thread that called what it is in, where such a thread of another rank is awaited there."""
    front = view.frontier
    if front is None or view.joining or _key(front) not in awaited:
        return view
    thread = find_thread(side_threads(threads_of(view.taken)), front.thread)
    if thread is None or _number(thread) == _number(view.thread):
        return view
    return view_from(view.taken, thread, view.pending, since_ns)


def _number(thread: ThreadStack | None) -> tuple[int, int]:
    return (thread.ident, thread.os_thread_id) if thread is not None else (0, 0)
