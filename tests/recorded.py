"""Recorded captures of real hangs (``tests/fixtures/captures``), and ways to take from them or rename their ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import msgspec

from hangwatch.causes.match import Match
from hangwatch.diagnosis.registry import explain
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.incident import Verdict
from hangwatch.model.numbers import is_guest
from hangwatch.model.stacks import Frame, StackSample, ThreadStack

CAPTURES = Path(__file__).resolve().parent / "fixtures" / "captures"
NAMES = tuple(sorted(path.stem for path in CAPTURES.glob("*.json")))


@cache
def load(name: str) -> Capture:
    """A recorded capture."""
    return msgspec.json.decode((CAPTURES / f"{name}.json").read_bytes(), type=Capture)


@cache
def verdict_of(name: str) -> Verdict:
    """What the present rules say of a recorded capture."""
    return diagnose(load(name)).verdict


def first_match(capture: Capture) -> Match:
    """Return what the rules say first of a capture."""
    return explain(diagnose(capture).case)[0]


def renamed(capture: Capture, new: Mapping[int, int]) -> Capture:
    """The same hang with other rank numbers: ``new`` maps the old ones."""

    def group(old: Group) -> Group:
        return msgspec.structs.replace(old, ranks=tuple(sorted(new[r] for r in old.ranks)))

    def operation(old: Operation) -> Operation:
        peer = new[old.peer] if old.peer is not None else None
        return msgspec.structs.replace(old, group=group(old.group), peer=peer)

    def progress(old: GroupProgress) -> GroupProgress:
        return msgspec.structs.replace(old, group=group(old.group))

    def flight(old: FlightRecord) -> FlightRecord:
        return msgspec.structs.replace(
            old,
            operations=tuple(operation(o) for o in old.operations),
            progress=tuple(progress(p) for p in old.progress),
        )

    def frame(old: Frame) -> Frame:
        peers = {"src", "dst", "group_src", "group_dst"}

        def local(name: str, value: str) -> str:
            if name in peers and value[:4] == "int=" and value[4:].isdigit():
                return f"int={new[int(value[4:])]}"
            if value.startswith("list[int]=["):
                return f"list[int]={sorted(new[int(r)] for r in value[11:-1].split(','))}".replace(" ", "")
            return value

        reported = {name: local(name, value) for name, value in (old.locals or {}).items()}
        return msgspec.structs.replace(old, locals=reported or None)

    def thread(old: ThreadStack) -> ThreadStack:
        return msgspec.structs.replace(old, frames=tuple(frame(f) for f in old.frames))

    def stack(old: StackSample) -> StackSample:
        return msgspec.structs.replace(old, threads=tuple(thread(t) for t in old.threads))

    def rank(old: RankCapture) -> RankCapture:
        return msgspec.structs.replace(
            old,
            identity=msgspec.structs.replace(old.identity, rank=new[old.rank], local_rank=new[old.rank]),
            stacks=tuple(stack(s) for s in old.stacks),
            flight=flight(old.flight) if old.flight is not None else None,
            progress=tuple(progress(p) for p in old.progress) if old.progress is not None else None,
        )

    # The order in which ranks are listed must not matter either.
    ranks = sorted((rank(r) for r in capture.ranks), key=lambda r: -r.rank)
    return msgspec.structs.replace(capture, ranks=tuple(ranks))


def without(capture: Capture, missing: Mapping[int, frozenset[str]]) -> Capture:
    """The capture with parts of it unseen: of each rank, a set of ``rank``, ``stacks``, ``flight``, ``progress``,
    ``processes``, ``sources`` (text and blocks of lines), ``sites`` (call sites of operations)."""
    ranks = []
    for old in capture.ranks:
        gone = missing.get(old.rank, frozenset())
        if "rank" in gone:
            continue
        changes: dict[str, object] = {}
        if "stacks" in gone:
            changes["stacks"] = ()
        elif "sources" in gone:
            changes["stacks"] = tuple(without_source(s) for s in old.stacks)
        if "flight" in gone:
            changes["flight"] = None
        elif "sites" in gone and old.flight is not None:
            bare = tuple(msgspec.structs.replace(o, frames=None) for o in old.flight.operations)
            changes["flight"] = msgspec.structs.replace(old.flight, operations=bare, source="json")
        if "progress" in gone:
            changes |= {"progress": None, "beat_age_s": None}
        if "processes" in gone:
            changes["processes"] = ()
        ranks.append(msgspec.structs.replace(old, **changes))
    return msgspec.structs.replace(capture, ranks=tuple(ranks))


def restless(capture: Capture, ranks: Collection[int]) -> Capture:
    """The capture where the main threads of these ranks have woken between all samples."""

    def woken(old: RankCapture) -> RankCapture:
        samples = (msgspec.structs.replace(p, switches=1000 * n) for n, p in enumerate(old.processes))
        return msgspec.structs.replace(old, processes=tuple(samples)) if old.rank in ranks else old

    return msgspec.structs.replace(capture, ranks=tuple(map(woken, capture.ranks)))


def is_healthy_and_stuck(found: Diagnosis) -> bool:
    """Whether a verdict of "healthy" holds a rank that waits and one that is stuck, which no verdict may."""
    states = {view.state for rank, view in found.case.views.items() if not is_guest(rank)}
    return found.verdict.kind == "healthy" and states.issuperset({"waiting", "stuck"})


def without_group(capture: Capture, group: Group, rank: int, parts: frozenset[str]) -> Capture:
    """The capture without a group in the ``flight``, the ``progress`` or both of one rank."""

    def rest(progress: tuple[GroupProgress, ...]) -> tuple[GroupProgress, ...]:
        return tuple(p for p in progress if p.group.key != group.key)

    def bare(old: RankCapture) -> RankCapture:
        flight, progress = old.flight, old.progress
        if flight is not None and "flight" in parts:
            operations = tuple(o for o in flight.operations if o.group.key != group.key)
            flight = msgspec.structs.replace(flight, operations=operations, progress=rest(flight.progress))
        if progress is not None and "progress" in parts:
            progress = rest(progress)
        return msgspec.structs.replace(old, flight=flight, progress=progress)

    return msgspec.structs.replace(capture, ranks=tuple(bare(r) if r.rank == rank else r for r in capture.ranks))


def without_thread(capture: Capture, rank: int, thread: int) -> Capture:
    """The capture without one thread (``ThreadStack.os_thread_id``) in all stacks of one rank."""

    def bare(old: RankCapture) -> RankCapture:
        stacks = (
            msgspec.structs.replace(s, threads=tuple(t for t in s.threads if t.os_thread_id != thread))
            for s in old.stacks
        )
        return msgspec.structs.replace(old, stacks=tuple(stacks))

    return msgspec.structs.replace(capture, ranks=tuple(bare(r) if r.rank == rank else r for r in capture.ranks))


def without_source(sample: StackSample) -> StackSample:
    """A stack sample whose source files could not be read."""

    def bare(thread: ThreadStack) -> ThreadStack:
        frames = tuple(msgspec.structs.replace(f, source=None, blocks=()) for f in thread.frames)
        return msgspec.structs.replace(thread, frames=frames)

    return msgspec.structs.replace(sample, threads=tuple(bare(t) for t in sample.threads))


def unclaimed(capture: Capture, taken: Mapping[Group, frozenset[int]]) -> Capture:
    """The same hang where nobody says to be these members of these groups: their places are known, and no more."""

    def group(old: Group) -> Group:
        lost = taken.get(old, frozenset())
        outside = tuple(place for place, rank in enumerate(old.ranks) if rank in lost)
        return msgspec.structs.replace(old, ranks=tuple(r for r in old.ranks if r not in lost), outside=outside)

    def progress(old: tuple[GroupProgress, ...]) -> tuple[GroupProgress, ...]:
        return tuple(msgspec.structs.replace(p, group=group(p.group)) for p in old)

    def flight(old: FlightRecord) -> FlightRecord:
        operations = tuple(msgspec.structs.replace(o, group=group(o.group)) for o in old.operations)
        return msgspec.structs.replace(old, operations=operations, progress=progress(old.progress))

    ranks = tuple(
        msgspec.structs.replace(
            r,
            flight=flight(r.flight) if r.flight is not None else None,
            progress=progress(r.progress) if r.progress is not None else None,
        )
        for r in capture.ranks
    )
    return msgspec.structs.replace(capture, ranks=ranks)
