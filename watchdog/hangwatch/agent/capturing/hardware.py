"""Adds to a capture what its node says of the hardware, once something was found to be wrong.

May import the model and ``hardware.sources``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from hangwatch.agent.capturing.redact import hide_in, secret_values
from hangwatch.hardware.sources.registry import NodeWatch
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.devices import KernelEvent, NodeFacts
from hangwatch.model.processes import ExitStatus

#: The source that tells how a process ended. If a rank is gone, nobody waits for NCCL's timeouts.
OF_THE_LOST = frozenset({"kernel log"})
#: The one that tells why a rank may be late.
OF_THE_LATE = frozenset({"nvml"})
_SIGKILL = 9


async def add_hardware(capture: Capture, watch: NodeWatch, only: Collection[str] | None = None) -> Capture:
    """Return the capture with this node's hardware facts and their meaning for its ranks; unchanged if no source was asked.

    ``only``: the sources to ask; None asks all, if the job uses NCCL.
    """
    facts, gaps = await watch.read([r.identity for r in capture.ranks], only)
    if facts is None:
        return capture
    # These facts may contain secrets of the environments of this node's ranks; no other environment can be read here.
    values = secret_values(r.identity for r in capture.ranks if r.identity.node == facts.node)
    facts, gaps = hide_in(facts, values), tuple(hide_in(gap, values) for gap in gaps)
    others = tuple(n for n in capture.nodes if n.node != facts.node)
    ranks = mark_killed(capture.ranks, facts)
    return msgspec.structs.replace(
        capture, ranks=ranks, nodes=(*others, facts), gaps=tuple(dict.fromkeys((*capture.gaps, *gaps)))
    )


def mark_killed(ranks: Sequence[RankCapture], facts: NodeFacts) -> tuple[RankCapture, ...]:
    """Return the ranks; those whose process the kernel killed for memory are marked as ended so."""
    killed = {e.rank: e for e in facts.events if e.kind == "oom" and e.rank is not None}
    return tuple(_killed(r, killed[r.rank]) if r.rank in killed else r for r in ranks)


def _killed(rank: RankCapture, event: KernelEvent) -> RankCapture:
    last = rank.sample
    if last is None or not last.ended:
        return rank
    seen = last.exit or ExitStatus(signal=_SIGKILL, seen_at_ns=event.at_ns)
    sample = msgspec.structs.replace(last, exit=msgspec.structs.replace(seen, oom_killed=True))
    return msgspec.structs.replace(rank, processes=(*rank.processes[:-1], sample))
