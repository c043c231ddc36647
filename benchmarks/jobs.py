"""Captures of large jobs as an exchange between nodes would have them: status and operations in flight of every rank, no more."""

from __future__ import annotations

from functools import cache

from dumps import START_NS, Layout, enqueued, program

from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.sources.flight.entries import split_name

_MINUTE_NS = 60_000_000_000


def capture_of(ranks: int, *, culprit: int | None = None) -> Capture:
    """A job of tensor, pipeline and data groups in which one rank has stopped, a minute after."""
    layout = Layout(ranks)
    culprit = ranks // 3 if culprit is None else culprit
    programs = [program(stage, layout.data, 300) for stage in (0, 1)]
    counts = enqueued(layout, programs, culprit, 40)

    @cache
    def group(name: str, members: range, description: str) -> Group:
        return Group(name, tuple(members), description)

    def groups(rank: int) -> dict[str, Group]:
        return {kind: group(str(n), ranks, text) for kind, (n, text, ranks) in layout.groups(rank).items()}

    found = []
    for rank in range(ranks):
        ops = programs[layout.stage(rank)][: counts[rank]]
        pending = rank != culprit
        own = groups(rank)
        numbers = dict.fromkeys(own, 0)
        for op, number in ops:
            numbers[op.kind] = number
        last, number = ops[-1]
        flying = Operation(
            record_id=len(ops) - 1,
            group=own[last.kind],
            seq=number,
            op=split_name(last.name)[1],
            completed=False,
            created_ns=START_NS,
            started=True,
            p2p=last.kind == "pipeline",
            peer=next((r for r in own["pipeline"].ranks if r != rank), None) if last.kind == "pipeline" else None,
            backend="nccl",
            input_sizes=tuple(tuple(size) for size in last.inputs),
            output_sizes=tuple(tuple(size) for size in last.outputs),
            input_dtypes=(last.dtype,),
            output_dtypes=(last.dtype,),
        )
        progress = tuple(
            GroupProgress(
                g, numbers[kind], numbers[kind], numbers[kind] - (pending and kind == last.kind), kind == "pipeline"
            )
            for kind, g in own.items()
        )
        flight = FlightRecord(START_NS + _MINUTE_NS, "json", "2.10", (flying,) if pending else (), progress)
        identity = RankIdentity(rank, 1000 + rank % 8, 1.0, f"node-{rank // 8}", rank % 8)
        found.append(RankCapture(identity, flight=flight, progress=progress, beat_age_s=0.3))
    return Capture(Job("job", ranks), START_NS + _MINUTE_NS, tuple(found))
