"""What a node says of its hardware: the registry of sources, each called in its own thread and never awaited for long.

May import hangwatch.model and its own parts. A source has a ``name``. ``begin`` takes the reading that later ones are
compared with. ``read`` returns the current facts (an ``Absence`` if the node has no such hardware) or a ``Gap``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from hangwatch.hardware.sources.fabric_ports import FabricPorts
from hangwatch.hardware.sources.kernel_log import KernelLog
from hangwatch.hardware.sources.nvml import Gpus
from hangwatch.hardware.sources.ras.report import Ras
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.devices import NodeFacts
from hangwatch.sources.discovery.rank_processes import RankProcess, read_rank_process, uses_nccl
from hangwatch.sources.proc.files import node_name

#: A driver that hangs answers nothing for ever, and NCCL waits ten seconds for its peers.
READ_TIMEOUT_S = 12.0
BEGIN_TIMEOUT_S = 3.0
#: First readings may be from before the hang: growth over some minutes says as much.
FIRST_READING_MAX_AGE_S = 300.0
#: A job that has not loaded NCCL may do so later.
NCCL_RECHECK_S = 30.0


class NodeSource(Protocol):
    """One source. Its calls may block, and are made one at a time."""

    name: str

    def begin(self) -> None:
        """Take the reading that later ones are compared with."""

    def read(self, ranks: Sequence[RankProcess], /) -> NodeFacts | Gap:
        """Return the current facts."""


#: All sources, in the order in which their evidence counts.
NODE_SOURCES: tuple[Callable[[], NodeSource], ...] = (
    KernelLog,
    Gpus,
    FabricPorts,
    Ras,
)


class NodeWatch:
    """The sources of this node for one watched job."""

    def __init__(self, sources: Sequence[Callable[[], NodeSource]] = NODE_SOURCES) -> None:
        self._sources = [make() for make in sources]
        self._busy: dict[str, float] = {}
        self._lock = threading.Lock()
        self._next_begin_s = 0.0

    async def begin(self, ranks: Sequence[RankIdentity]) -> None:
        """Take first readings for a job that uses NCCL, unless there are recent ones."""
        now_s = time.monotonic()
        if now_s < self._next_begin_s:
            return
        nccl = any(uses_nccl(r.pid) for r in ranks)
        self._next_begin_s = now_s + (FIRST_READING_MAX_AGE_S if nccl else NCCL_RECHECK_S)
        if nccl:
            await asyncio.gather(*(self._call(s.name, s.begin, BEGIN_TIMEOUT_S) for s in self._sources))

    async def read(
        self, ranks: Sequence[RankIdentity], only: Collection[str] | None = None
    ) -> tuple[NodeFacts | None, tuple[Gap, ...]]:
        """Return the current facts (None if no source was asked) and gaps for sources that could not tell.

        ``only``: the sources to ask; None asks all, if the ranks use NCCL.
        """
        processes = [read_rank_process(r) for r in ranks]
        if only is None and not any(uses_nccl(p.pid) for p in processes if p.alive):
            return None, ()
        asked = [s for s in self._sources if only is None or s.name in only]
        found = await asyncio.gather(*(self._call(s.name, partial(s.read, processes), READ_TIMEOUT_S) for s in asked))
        facts = [f for f in found if isinstance(f, NodeFacts)]
        return merge_facts(node_name(), time.time_ns(), facts), tuple(f for f in found if isinstance(f, Gap))

    async def _call(
        self, name: str, call: Callable[[], NodeFacts | Gap | None], timeout_s: float
    ) -> NodeFacts | Gap | None:
        """Return the call's answer; a Gap if it takes too long, or if the call before has not returned yet."""
        now_s = time.monotonic()
        with self._lock:
            since_s = self._busy.setdefault(name, now_s)
        if since_s != now_s:
            return _hangs(name, now_s - since_s)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[NodeFacts | Gap | None] = loop.create_future()

        def settle(value: NodeFacts | Gap | None) -> None:
            if not answer.done():
                answer.set_result(value)

        def work() -> None:
            value: NodeFacts | Gap | None = Gap(name, "failed; see the agent's log")
            try:
                value = call()
            finally:
                with self._lock:
                    del self._busy[name]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(settle, value)

        # A daemon: a driver that never answers must not keep the agent from ending.
        threading.Thread(target=work, name=f"hangwatch-{name}", daemon=True).start()
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except asyncio.TimeoutError:
            return _hangs(name, timeout_s)


def _hangs(name: str, seconds: float) -> Gap:
    return Gap(name, f"has not answered for {seconds:.0f} s (its driver or server may hang)")


def merge_facts(node: str, at_ns: int, parts: Sequence[NodeFacts]) -> NodeFacts:
    """Return the findings of several sources as one value."""
    fields = [f for f in NodeFacts.__struct_fields__ if f not in {"node", "at_ns"}]
    return NodeFacts(node, at_ns, **{f: tuple(item for part in parts for item in getattr(part, f)) for f in fields})
