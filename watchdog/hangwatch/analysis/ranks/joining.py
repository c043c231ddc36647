"""All ranks side by side, each seen from the thread that the others wait for, as far as that can be told. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from hangwatch.analysis.motion.samples import read_motion, still_since_ns
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
from hangwatch.model.numbers import is_guest
from hangwatch.model.processes import SLEEPS
from hangwatch.model.stacks import ThreadStack

#: Threads that are left out, by rank (``ThreadStack.ident``).
ExcludedThreads = Mapping[int, frozenset[int]]
NONE_EXCLUDED: ExcludedThreads = MappingProxyType({})


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
    excluded: ExcludedThreads = NONE_EXCLUDED,
) -> Mapping[int, RankView]:
    """Return the views of all ranks of the capture, by global rank.

    ``known``: earlier views, which are kept if they are of the very same rank capture. ``excluded``: threads that are
    left out.
    """
    silent = {rank for node in capture.silent for rank in node.ranks}

    def view(one: RankCapture) -> RankView:
        found = known.get(one.rank)
        same = found is not None and found.taken is one and not found.joining
        return found if same and found is not None else view_rank(one, since_ns, excluded.get(one.rank, ()))

    views = {c.rank: view(c) for c in sorted(capture.ranks, key=lambda c: c.rank)}
    if any(v.side_threads for v in views.values()):
        views = _from_joining_threads(views, since_ns, excluded)
    views = with_outside_stores(_moving_since_others_wait(views, since_ns))
    held = _held_up(views, capture.job.world_size)
    return {r: replace(v, silent=True) if r in silent else v for r, v in held.items()}


def _moving_since_others_wait(views: Mapping[int, RankView], since_ns: int) -> dict[int, RankView]:
    """Return the views with the motion judged from when any other rank began to wait.

    Before that a rank may still have been in its last step, in a sample within the window: on a busy machine they are
    seconds apart.
    """
    began = [v.pending[0].created_ns for v in views.values() if v.pending]
    if not began:
        return dict(views)

    def again(view: RankView) -> RankView:
        if view.motion.state != "busy" or view.pending or view.wait is not None:
            return view
        return replace(view, motion=read_motion(view.capture, since_ns, began_ns=min(began)))

    return {r: again(v) for r, v in views.items()}


def _held_up(views: Mapping[int, RankView], world_size: int | None) -> Mapping[int, RankView]:
    """Return the views with those marked that are in a collective while a rank that it needs stands still elsewhere.

    They cannot go on, however often they wake: NCCL makes a communicator in its first collective, and polls there. Of a
    group that is not known, only this is known: another rank is in it.
    """
    ranks = {r for r in views if not is_guest(r)}
    sinces = {r: ns for r in ranks if _is_still_elsewhere(views[r]) and (ns := _still_since_ns(views[r])) is not None}
    unseen = (world_size or 0) > len(ranks)

    def since_ns(rank: int, view: RankView) -> int | None:
        if view.pending or view.wait is None or view.wait.kind != "collective" or not sinces:
            return None
        if view.wait.default_group:
            return min(sinces.values())
        return max(sinces.values()) if not unseen and ranks - {rank} <= sinces.keys() else None

    held = {r: since_ns(r, v) for r, v in views.items()}
    return {r: v if v.held_since_ns == held[r] else replace(v, held_since_ns=held[r]) for r, v in views.items()}


def _is_still_elsewhere(view: RankView) -> bool:
    """True if no thread of a rank is in a collective or may yet call one, and the one that it is seen from stands still."""
    outside = view.wait is None and not view.pending and bool(view.frames) and view.alone
    return outside and view.motion.state in {"stuck", "stopped"}


def _still_since_ns(view: RankView) -> int | None:
    sleeps = view.sample is not None and view.sample.syscall in SLEEPS
    return still_since_ns(view.capture, polls=sleeps)


def _from_joining_threads(
    views: Mapping[int, RankView], since_ns: int, excluded: ExcludedThreads
) -> dict[int, RankView]:
    fronts = _fronts(views.values())
    found = dict(views)
    awaited: set[tuple[str, int]] = set()
    for rank, view in views.items():
        if view.side_threads and not view.gone:
            found[rank], front = _joining_view(view, fronts, since_ns, excluded.get(rank, frozenset()))
            awaited |= {_key(front.operation)} if front is not None else set()
    return {rank: _calling_view(view, awaited, since_ns) for rank, view in found.items()}


def _key(operation: Operation) -> tuple[str, int]:
    return operation.group.key, operation.seq


def _fronts(views: Iterable[RankView]) -> list[_Front]:
    """Return the collectives that ranks are in, the oldest first."""
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
    """Return the thread that called what a rank is in, if that is recorded; else the thread that its view is of."""
    return find_thread(threads_of(view.taken), front.thread) or main_of(view.threads)


def _joining_view(
    view: RankView, fronts: Iterable[_Front], since_ns: int, excluded: Container[int]
) -> tuple[RankView, _Front | None]:
    """Return the rank seen from the thread that others wait for, and where they wait, if its view is of another thread.

    As long as that thread could still come, the rank does not wait for the others. A rank that waits keeps its view if
    that thread may itself wait, for another thread of its rank perhaps.
    """
    front, last = _awaited_front(view, fronts)
    joining = find_joining(view.taken, last, front.parts) if front is not None else None
    if joining is None or joining.ident in excluded:
        return view, None
    thread = None if joining.is_main else joining
    if _thread_key(thread) == _thread_key(view.thread) or (thread is None and view.asks):
        return view, None  # a side thread asks another process, and the main thread waits for it
    # The main thread's backward pass runs its hooks in a thread of the engine, behind what the main thread has in flight.
    backward = view.wait is not None and view.wait.kind == "backward"
    others = {t.ident for t in threads_of(view.taken) if t is not joining and t.ident and not (backward and t.is_main)}
    pending = pending_of(view.taken, others)
    found = view_from(view.taken, thread, pending, since_ns, joining=True)
    waits = view.wait is not None or view.frontier is not None
    keeps = waits and not (found.waits_for_no_rank or found.wait is not None)
    return (view, None) if keeps else (found, front)


def _awaited_front(view: RankView, fronts: Iterable[_Front]) -> tuple[_Front | None, Operation | None]:
    """Return the oldest operation that others are in and this rank has not called, and what it called last in that group."""
    for front in fronts:
        if view.rank in front.members:
            last = last_called(view.taken, front.operation.group.key)
            if last is None or last.seq < front.operation.seq:
                return front, last
    return None, None


def _calling_view(view: RankView, awaited: Container[tuple[str, int]], since_ns: int) -> RankView:
    """Return the rank seen from the thread that called what it is in, if such a thread of another rank is awaited there."""
    front = view.frontier
    if front is None or view.joining or _key(front) not in awaited:
        return view
    thread = find_thread(side_threads(threads_of(view.taken)), front.thread)
    if thread is None or _thread_key(thread) == _thread_key(view.thread):
        return view
    return view_from(view.taken, thread, view.pending, since_ns)


def _thread_key(thread: ThreadStack | None) -> tuple[int, int]:
    return (thread.ident, thread.os_thread_id) if thread is not None else (0, 0)
