"""One rank as the diagnosis sees it: its pending operations, what it waits for, whether it moves. Pure.

A view is of one thread of the rank: of the main one, unless another does the collectives that matter (``threads.py``).
Everything in a view (wait, frames, motion, last system call) is about that thread.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from hangwatch.analysis.motion.samples import Motion, read_motion, still_since_ns
from hangwatch.analysis.operations.alignment import GroupKey, mixed_groups
from hangwatch.analysis.places import user_frame
from hangwatch.analysis.ranks.connecting import among_members
from hangwatch.analysis.ranks.device import OwnDevice, awaits_own_device, connects, on_nccl, read_device_wait
from hangwatch.analysis.ranks.threads import (
    choose_thread,
    main_of,
    may_join,
    seen_from,
    side_threads,
    threads_of,
)
from hangwatch.analysis.stacks.communicators import read_communicator
from hangwatch.analysis.stacks.remote_calls import names_awaited
from hangwatch.analysis.stacks.waits import Wait, in_torch_distributed, read_connection, read_destructor, read_wait
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import DEFAULT_GROUP, Group, GroupProgress, Operation, call_group, in_flight
from hangwatch.model.numbers import world_of
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Frame, ThreadStack, once_a_stack


@dataclass(frozen=True)
class RankView:
    """A rank at the end of its capture, seen from one of its threads.

    ``pending``: operations enqueued and not completed, oldest first; ``frontier`` is the first of them. ``wait``: what
    the thread waits for by its stack. ``frames``: its stack, deepest first, empty if unseen. ``silent``: its node is
    lost, and the rank with it as far as can be seen. ``own_device``: how it is known that it waits for its device and
    for no rank behind it. ``thread``: the thread that it is seen from, None for the main one; in ``capture`` and
    ``threads`` it has the place of the main thread. ``taken``: the rank as it was captured. ``joining``: the thread was
    chosen as the one that the others wait for. ``held_since_ns``: since when a rank that it needs in its collective
    stands still elsewhere; None if none does.
    """

    capture: RankCapture
    pending: tuple[Operation, ...]
    wait: Wait | None
    motion: Motion
    frames: tuple[Frame, ...]
    threads: tuple[ThreadStack, ...]
    taken: RankCapture
    thread: ThreadStack | None = None
    joining: bool = False
    silent: bool = False
    own_device: OwnDevice = ""
    held_since_ns: int | None = None

    @property
    def meets_at(self) -> int | None:
        """The port at which it meets the others: from its stack, else from its environment; None if neither tells."""
        port = self.wait.port if self.wait is not None else None
        return port if port is not None else self.capture.identity.meeting_port

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.capture.rank

    @property
    def frontier(self) -> Operation | None:
        """The first operation that has not completed; None if nothing is in flight."""
        return self.pending[0] if self.pending else None

    @property
    def gone(self) -> bool:
        """True if its process has ended."""
        return self.motion.state == "lost"

    @property
    def returning(self) -> bool:
        """True if its process has ended, and the process that started it lives and may start it anew."""
        return self.gone and self.capture.processes[-1].supervised

    @property
    def waits_for_no_rank(self) -> bool:
        """True if it surely waits for no rank, whatever it has in flight: gone, stopped, at work, or asleep in another call.

        A thread without a known wait that hangs on a futex may be in a wait that we do not recognise, so it does not
        count.
        """
        if self.motion.state in {"lost", "stopped"} or self.silent:
            return True
        if self.wait is not None or not self.frames:
            return False
        channel = self.sample.wait_channel if self.sample is not None else None
        return self.motion.state == "busy" or (channel is not None and not channel.startswith("futex"))

    @property
    def sample(self) -> ProcessSample | None:
        """Its last process sample; None if there is none."""
        return self.capture.sample

    @property
    def asks(self) -> bool:
        """True if it is blocked on a connection whose other end is another process that may be seen."""
        last = self.sample
        if self.wait is not None or last is None:
            return False
        return bool(last.other_ends) or last.answering is not None

    @property
    def in_request(self) -> bool:
        """True if it awaits an answer of another process: over a connection, or from a function that it has called there."""
        return self.asks or (self.wait is None and names_awaited(self.frames) is not None)

    @property
    def store(self) -> str | None:
        """The address of the store for whose key it waits; None if it waits for none, or if the store was not seen."""
        last = self.sample
        found = last.store if last is not None and self.wait is not None and self.wait.kind == "store" else None
        return found.address if found is not None else None

    @property
    def unseen_clients(self) -> int:
        """How many connections to that store belong to processes that were not seen."""
        store = self.sample.store if self.sample is not None else None
        return store.unseen if store is not None else 0

    @property
    def ident(self) -> int:
        """The number (``ThreadStack.ident``) of the thread that this view is of; 0 if unknown."""
        return _ident(self.capture)

    @property
    def alone(self) -> bool:
        """True if no other thread can join collectives: none is one of the program or inside torch.distributed."""
        return not any(may_join(t.frames) for t in self.side_threads)

    @property
    def side_threads(self) -> tuple[ThreadStack, ...]:
        """The program's other Python threads, without those of the probe."""
        return side_threads(self.threads)

    @property
    def who(self) -> str:
        """The name of the thread for people: ``main thread``, ``thread train_0``."""
        return "main thread" if self.thread is None else f"thread {self.thread.label}"

    @cached_property
    def settled(self) -> bool:
        """True if none of its groups has moved between its flight record and the progress read after that."""
        if self.capture.flight is None or self.capture.progress is None:
            return True
        before = {p.group.key: (p.enqueued, p.completed) for p in self.capture.flight.progress}
        if _has_not_moved(before, self.capture.progress):
            return True
        # Gloo's status may stand at an earlier number than its entries, which complete out of order: they count too.
        for done in self.capture.flight.operations:
            if done.completed and not done.p2p:
                enqueued, completed = before.get(done.group.key, (0, 0))
                before[done.group.key] = (max(enqueued, done.seq), max(completed, done.seq))
        return _has_not_moved(before, self.capture.progress)

    @property
    def blocked(self) -> bool:
        """True if its thread is seen waiting for other ranks and not moving: the ground of a proof."""
        stands = self.motion.state == "stuck" and self.settled
        return self.wait is not None and stands and self.wait.kind != "device"

    @property
    def state(self) -> str:
        """The state in one word, for the document: lost, stopped, waiting, stuck, busy or unknown."""
        if self.motion.state in {"lost", "stopped"} or self.silent:
            return "lost" if self.silent else self.motion.state
        if self.wait is not None and (self.frontier is not None or self.wait.kind not in {"backward", "device"}):
            return "waiting"
        unseen = not self.frames and self.motion.state == "unknown"
        return "waiting" if unseen and self.frontier is not None else self.motion.state


def _has_not_moved(before: Mapping[GroupKey, tuple[int, int]], progress: Sequence[GroupProgress]) -> bool:
    """True if no group is further than it was. ``before``: the numbers enqueued and completed, by group."""
    pairs = ((before[p.group.key], p) for p in progress if p.group.key in before)
    return all(later.enqueued <= enqueued and later.completed <= completed for (enqueued, completed), later in pairs)


def _completed_since(operation: Operation, capture: RankCapture) -> bool:
    """True if an operation has completed by the progress read after the record (Gloo may report completion out of order)."""
    if operation.p2p or capture.flight is None:
        return False
    before = {p.group.key: p.completed for p in capture.flight.progress}
    for later in capture.progress or ():
        if later.mixed or later.group.key != operation.group.key or later.completed < operation.seq:
            continue
        if later.completed >= later.enqueued or before.get(later.group.key, -1) < operation.seq:
            return later.group.key not in mixed_groups(capture)
    return False


def _peer(capture: RankCapture, wait: Wait) -> tuple[int, ...]:
    """Return the rank that a wait names by its place in a group, or by its stage; none unless only one group is possible."""
    groups = {
        p.group.ranks
        for p in capture.progress or ()
        if (call_group(p.group.name, p.group.description) == wait.group if wait.group else len(p.group.ranks) != 1)
    }
    ranks = next(iter(groups)) if len(groups) == 1 else ()
    if capture.rank not in ranks:
        return ()
    place = wait.place if wait.place is not None else ranks.index(capture.rank) + (wait.stage or 0)
    return (ranks[place],) if 0 <= place < len(ranks) else ()


def _among_group(capture: RankCapture, wait: Wait) -> Wait:
    """Return the wait with the members of the group that it names, if they are known."""
    found = (p.group for p in capture.progress or () if call_group(p.group.name, p.group.description) == wait.group)
    group = next(found, None) if wait.group else None
    return replace(wait, peers=group.ranks, exact=True) if group is not None and group.ranks else wait


def _joins_worlds(rank: int, group: Group) -> bool:
    """True if processes of another world than the rank's are in the group: a stack does not tell which group it is in."""
    return group.description != DEFAULT_GROUP and not group.worlds <= {world_of(rank)}


def _marked_outside(capture: RankCapture, wait: Wait) -> Wait:
    """Return the wait as one for processes outside the job if it may be that: then its numbers are no ranks of the job."""
    if wait.kind == "initialization":
        # The rank has its world already, so it waits for another one.
        outside = any(p.group.description == DEFAULT_GROUP for p in capture.progress or ())
    else:
        unnamed = wait.kind == "communicator" and not wait.peers
        anywhere = unnamed or (wait.kind in {"collective", "point_to_point", "work"} and not wait.default_group)
        outside = anywhere and any(
            p.group.outside or _joins_worlds(capture.rank, p.group) for p in capture.progress or ()
        )
    if not (outside or wait.outside):
        return wait
    op = "rendezvous" if wait.kind == "initialization" else wait.op
    return replace(wait, op=op, outside=True, peers=(), world_size=None)


def _read_wait(capture: RankCapture, frames: Sequence[Frame], pending: Sequence[Operation]) -> Wait | None:
    wait = read_communicator(frames) or read_wait(frames) or (read_destructor(frames) if pending else None)
    last = capture.sample
    if wait is None and last is not None and last.store is not None and frames:
        # The kernel shows the store, whatever the program calls it. A rank that makes one polls, and is in one wait all along.
        connecting = read_connection(frames) is not None
        return Wait("store", "store", user_frame(frames) or frames[0], connecting=connecting)
    if wait is None or wait.kind == "device":
        return read_device_wait(capture, frames, pending, wait)
    if wait.kind == "communicator":
        return _among_group(capture, wait)
    if wait.kind == "collective":
        return among_members(capture, wait, pending, _ident(capture))
    if not wait.peers and (wait.stage is not None or wait.place is not None):
        return replace(wait, peers=_peer(capture, wait))
    return wait


def _ident(capture: RankCapture) -> int:
    main = main_of(threads_of(capture))
    return main.ident if main is not None else 0


def _spins(
    capture: RankCapture, pending: Sequence[Operation], wait: Wait | None, threads: Sequence[ThreadStack]
) -> bool:
    """True if the CPU time of a rank is that of a wait for its GPU, or in NCCL's host code, which polls.

    The engine of a backward pass has threads of its own: one that runs Python code may well be at work.
    """
    if wait is None:
        return False
    if wait.kind == "communicator" or connects(capture, wait, pending):
        return True
    if not on_nccl(pending):
        return False
    at_work = any(t.active for t in side_threads(threads))
    return not (wait.kind == "backward" and at_work)


def view_rank(capture: RankCapture, since_ns: int = 0, excluded: Container[int] = ()) -> RankView:
    """Return the view of one rank, by what it shows itself. Motion is judged by the samples since ``since_ns``.

    ``excluded``: threads (``ThreadStack.ident``) that the rank is not seen from, and whose operations do not count.
    """
    pending = pending_of(capture, excluded)
    return view_from(capture, choose_thread(capture, pending, excluded), pending, since_ns)


def pending_of(capture: RankCapture, excluded: Container[int] = ()) -> tuple[Operation, ...]:
    """Return the operations in flight, oldest first, without those that the ``excluded`` threads have called."""
    recorded = in_flight(capture.flight.operations) if capture.flight is not None else ()
    return tuple(o for o in recorded if not _completed_since(o, capture) and not (o.thread and o.thread in excluded))


def view_from(
    taken: RankCapture,
    thread: ThreadStack | None,
    pending: tuple[Operation, ...],
    since_ns: int,
    *,
    joining: bool = False,
) -> RankView:
    """Return the view of a rank from one of its threads (None: the main one), with ``pending`` of what it has in flight."""
    capture = taken if thread is None else seen_from(taken, thread)
    threads = threads_of(capture)
    frames = next((t.frames for t in threads if t.is_main), ())
    read = _read_wait(capture, frames, pending)
    wait = _marked_outside(capture, read) if read is not None else None
    # What a rank did before its operation says nothing about its wait. An operation without a record began at the latest
    # when the thread that waits for it last ran.
    began_ns = pending[0].created_ns if pending else still_since_ns(capture) if wait is not None else None
    motion = read_motion(
        capture, since_ns, began_ns=began_ns or 0, spins=_spins(capture, pending, wait, threads), waits=wait is not None
    )
    own_device = awaits_own_device(capture, wait, pending) if motion.state == "stuck" else ""
    return RankView(
        capture=capture,
        pending=pending,
        wait=None if motion.state == "lost" or own_device else wait,
        motion=motion,
        frames=() if motion.state == "lost" else frames,
        threads=threads,
        taken=taken,
        thread=thread,
        joining=joining,
        own_device=own_device,
    )


def number_by_process(views: Mapping[int, RankView]) -> dict[tuple[str, int], int]:
    """Return the number of each process, by its node and its pid there."""
    return {(v.capture.identity.node, v.capture.identity.pid): number for number, v in views.items()}


def root_of(view: RankView) -> int | None:
    """Return the rank that a rank has named as the root (``src``, ``dst``) of what it waits in; None if that was not seen."""
    name, number = _named_root(view.frames)
    front = view.frontier
    return number if number is None or front is None or name in {"src", "dst"} else front.group.rank_at(number)


@once_a_stack
def _named_root(frames: Sequence[Frame]) -> tuple[str, int | None]:
    inside = tuple(takewhile(in_torch_distributed, frames))
    for name in ("src", "dst", "group_src", "group_dst"):
        described = next((t for f in inside if (t := (f.locals or {}).get(name, "")).startswith("int=")), None)
        if described is not None:
            return name, int(described.removeprefix("int="))
    return "", None
