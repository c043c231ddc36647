"""Late ranks on several nodes: each node reads its own ranks' records, and the one that leads compares and has a rank watched."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from simulated import Node, quicken, run_until

from hangwatch.agent.capturing import arrivals as reading
from hangwatch.exchange.local import LocalExchange
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import DeviceTime, Group, Operation
from hangwatch.model.slowness import Profile, Traffic
from hangwatch.slow.follow import STEPS, Following, Process

sys.path.append(str(Path(__file__).resolve().parent.parent / "slow"))
from arrivals import SimulatedJob, Work, slow

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("real")]
RANKS, LATE = 12, 7
_T = TypeVar("_T")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same life, five times as fast."""
    quicken(monkeypatch)


def make_nodes(folder: Path, work: Work, backend: str) -> list[Node]:
    """Three nodes with four ranks each of a job that goes on, whose records have been read."""
    identities = [RankIdentity(rank, 100 + rank, 1.0) for rank in range(RANKS)]
    whole = Capture(Job("job", RANKS), 1, tuple(RankCapture(one) for one in identities))
    shared = LocalExchange()
    nodes = [Node(f"n{n}", shared, folder / f"n{n}", whole, tuple(range(4 * n, 4 * n + 4))) for n in range(3)]
    streams = SimulatedJob(RANKS, "sync", work, steps=STEPS + 1).run()
    ends = [max(calls[at].at_ns for calls in streams.values()) for at in range(STEPS + 1)]
    group = Group("0", tuple(range(RANKS)), "default_pg")
    for node in nodes:
        windows = node.watch.local.arrivals.windows
        windows.keep([Process(rank, 100 + rank, 1.0) for rank in node.ranks])
        for rank in node.ranks:
            operations = tuple(
                Operation(at, group, call.seq, "all_reduce", True, call.at_ns, backend=backend)
                for at, call in enumerate(streams[rank])
            )
            times = [DeviceTime(end, end - call.at_ns) for end, call in zip(ends, streams[rank], strict=True)]
            windows.add(Process(rank, 100 + rank, 1.0), operations, times if backend == "nccl" else ())
    return nodes


async def ask(nodes: list[Node], asked: Coroutine[Any, Any, _T]) -> _T:
    """The answer to what is asked while the nodes live."""
    task = asyncio.ensure_future(asked)
    await run_until(nodes, task.done)
    return task.result()


async def leader(nodes: list[Node]) -> Node:
    """The node that leads, once it knows all ranks and how long each has waited."""
    await run_until(nodes, lambda: any(n.fleet.leads and n.fleet.comparison.is_whole for n in nodes))
    return next(node for node in nodes if node.fleet.leads)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
async def test_the_leader_finds_a_late_rank_of_another_node(backend: str, tmp_path: Path) -> None:
    """Only the leader looks; it names the node, too."""
    nodes = make_nodes(tmp_path, slow(LATE, 0.4), backend)
    own = {node.name: node.watch.local.arrivals.windows.newest() for node in nodes}
    first = await leader(nodes)
    comparison = first.fleet.comparison
    assert [node.fleet.comparison.looks for node in nodes] == [node is first for node in nodes]
    streams = await ask(nodes, comparison.gather(own[first.name] or {}))
    assert streams is not None
    assert streams.keys() == set(range(RANKS))
    following = Following()
    following.look(streams, one_clock=comparison.one_clock)
    assert following.named is not None
    assert following.named.rank == LATE
    assert following.named.waiting == tuple(rank for rank in range(RANKS) if rank != LATE)
    capture = await comparison.capture(devices=False)
    assert {rank.rank: rank.identity.node for rank in capture.ranks} == {rank: f"n{rank // 4}" for rank in range(RANKS)}
    for node in nodes:
        await node.watch.end(0)


async def test_the_leader_knows_the_links_of_all_nodes(tmp_path: Path) -> None:
    """Each node tells its own."""
    nodes = make_nodes(tmp_path, slow(LATE, 0.4), "gloo")
    links = {node.name: (Traffic(f"10.0.0.{at}", "10.0.0.9", 0.1, 5, 6, 7),) for at, node in enumerate(nodes)}
    for node in nodes:
        node.watch.local.arrivals.links = links[node.name]
    first = await leader(nodes)
    await run_until(nodes, lambda: first.fleet.comparison.links == links)
    for node in nodes:
        await node.watch.end(0)


async def test_a_rank_is_watched_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of them, on whichever node; what is asked meanwhile is answered."""

    async def profile(rank: int, _pid: int, _seconds: float) -> Profile | None:
        watched.append(rank)
        if len(watched) == len(elsewhere):
            begun.set()
        await asyncio.wait_for(captured.wait(), 30.0)
        return Profile(rank, 50, ())

    monkeypatch.setattr(reading, "profile_rank", profile)
    nodes, watched = make_nodes(tmp_path, slow(LATE, 0.4), "nccl"), list[int]()
    begun, captured = asyncio.Event(), asyncio.Event()
    first = await leader(nodes)
    elsewhere = [node.ranks[0] for node in nodes if node is not first]

    async def profile_and_capture() -> Sequence[Profile]:
        asked = asyncio.ensure_future(first.fleet.comparison.profile(elsewhere, 5.0))
        await asyncio.wait_for(begun.wait(), 30.0)
        assert len((await first.fleet.scope.capture()).ranks) == RANKS
        captured.set()
        return await asked

    assert sorted(one.rank for one in await ask(nodes, profile_and_capture())) == elsewhere
    for node in nodes:
        await node.watch.end(0)


async def test_a_node_without_calls_is_waited_for_once(tmp_path: Path) -> None:
    """Its records say nothing: nobody is named without it."""
    nodes = make_nodes(tmp_path, slow(LATE, 0.4), "gloo")
    first = await leader(nodes)
    own = first.watch.local.arrivals.windows.newest()
    silent = next(node for node in nodes if node is not first)
    silent.watch.local.arrivals.windows.keep([])
    assert await ask(nodes, first.fleet.comparison.gather(own or {})) is None
    for node in nodes:
        await node.watch.end(0)
