"""Several nodes, one verdict: recorded hangs, their ranks spread over nodes that share an exchange."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import RedisServer
from simulated import Node, quicken, run_until, spread_ranks

from hangwatch.agent.fleet import link as fleet_link
from hangwatch.agent.fleet import shared_incident as fleet_incident
from hangwatch.agent.incidents.reopen import LeftOpen
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.exchange.local import LocalExchange
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.redis import RedisExchange
from hangwatch.model.devices import KernelEvent, NodeFacts
from hangwatch.outputs.bundle.bundle import read_bundle
from support import JobRunner, find_free_port

sys.path.append(str(Path(__file__).resolve().parent.parent / "causes"))
from recorded import load

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("real")]
#: Hangs that are proven, so that nobody has to be patient in a test.
PROVEN = ("rank_conditional", "group_order", "skipped_step")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same life, five times as fast."""
    quicken(monkeypatch)


def make_nodes(name: str, count: int, folder: Path, exchange: Callable[[int], Exchange]) -> list[Node]:
    """A recorded hang on so many nodes."""
    whole = load(name)
    spread = spread_ranks(whole, count)
    return [Node(f"n{n}", exchange(n), folder / f"n{n}", whole, ranks) for n, ranks in spread.items()]


async def end(nodes: list[Node]) -> None:
    """End all agents."""
    for node in nodes:
        await node.watch.end(0)


def leader(nodes: list[Node]) -> Node:
    """Who holds the lease."""
    return next(node for node in nodes if node.fleet.leads)


@pytest.mark.parametrize("name", PROVEN)
async def test_one_verdict_for_the_whole_job(name: str, tmp_path: Path) -> None:
    """It is that of all ranks seen at once; one node tells, and each has a bundle under the same id, with its own ranks in it."""
    expected = diagnose(load(name), patience=fixed_patience(5.0), min_wait_s=0.5).verdict  # the nodes would stand still
    shared = LocalExchange()
    nodes = make_nodes(name, 2, tmp_path, lambda _: shared)
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    first = leader(nodes)
    assert [len(node.announced) for node in nodes] == [int(node is first) for node in nodes]
    assert [len(node.of_peers) for node in nodes] == [int(node is not first) for node in nodes]
    documents = [node.bundles[0] for node in nodes]
    assert len({document.id for document in documents}) == 1
    for node, document in zip(nodes, documents, strict=True):
        verdict = document.verdict
        assert (verdict.kind, verdict.culprit_ranks) == (expected.kind, expected.culprit_ranks)
        assert (verdict.cause and verdict.cause.id) == (expected.cause and expected.cause.id)
        ranks = {entry.rank for entry in document.ranks}
        assert ranks == (set(node.ranks) if node is not first else {r.rank for r in load(name).ranks})
    assert len(set(first.bundles[0].job.nodes)) == 2
    await end(nodes)


async def test_all_nodes_may_act_once_the_leader_has_looked_again(tmp_path: Path) -> None:
    """Each is told once: the report is not enough, and the captures are the leader's."""
    shared = LocalExchange()
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda _: shared)
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    first = leader(nodes)
    assert not first.announced[0].may_be_acted_on
    await run_until(nodes, lambda: all(node.acted_on for node in nodes))
    assert [len(node.acted_on) for node in nodes] == [1, 1]
    assert {node.acted_on[0].id for node in nodes} == {first.announced[0].id}
    assert all(node.bundles[0].may_be_acted_on for node in nodes)
    await end(nodes)


async def report_on_two(folder: Path) -> tuple[list[Node], Node, Node]:
    """Two nodes after one of them has reported a hang; who leads, and the other one."""
    shared = LocalExchange()
    nodes = make_nodes(PROVEN[0], 2, folder, lambda _: shared)
    await run_until(nodes, lambda: any(node.announced for node in nodes))
    first = leader(nodes)
    return nodes, first, next(node for node in nodes if node is not first)


async def test_the_bundle_has_the_hardware_of_all_nodes(tmp_path: Path) -> None:
    """A proof is reported without asking for any; the bundle of the node that reports is completed with every node's."""
    shared = LocalExchange()
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda _: shared)
    for node in nodes:
        node.hardware = NodeFacts(node.name, 1, looked=("kernel log",))
    await run_until(nodes, lambda: any(node.announced for node in nodes))
    first = leader(nodes)
    assert "kernel_log" not in first.announced[0].captured
    await run_until(nodes, lambda: first.bundles[0].captured.get("kernel_log"))
    record = first.watch.incidents.record
    assert record is not None
    assert record.path is not None
    _, capture = read_bundle(record.path)
    assert {facts.node for facts in capture.nodes} == {"n0", "n1"}
    await end(nodes)


async def test_a_rank_that_another_node_killed_for_memory(tmp_path: Path) -> None:
    """What the kernel there says of its end is in the verdict of the node that leads."""
    shared, whole = LocalExchange(), load("killed")
    first = Node("n0", shared, tmp_path / "n0", whole, (0,))
    await run_until([first], lambda: first.fleet.leads)
    others = [Node(f"n{rank}", shared, tmp_path / f"n{rank}", whole, (rank,)) for rank in (1, 2)]
    there = others[1]
    there.watch.update_ranks(None, time.monotonic())
    event = KernelEvent(time.time_ns(), "oom", "Out of memory: Killed process 1356 (python)", pid=1356, rank=2)
    there.hardware = NodeFacts(there.name, time.time_ns(), events=(event,), looked=("kernel log",))
    await run_until([first, *others], lambda: first.announced)
    verdict = first.announced[0].verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("rank_lost", (2,))
    assert verdict.cause is not None
    assert "out-of-memory killer ended rank 2's process" in verdict.cause.explanation
    await end([first, *others])


async def test_a_question_is_not_replaced_before_it_is_answered(tmp_path: Path) -> None:
    """A capture comes from the other node although call sites are asked for in the same moment."""
    nodes, first, second = await report_on_two(tmp_path)
    await run_until(nodes, lambda: first.fleet.sharing.shared and first.fleet.sharing.shared.complete)
    scope = first.watch.scope
    asked = asyncio.gather(scope.capture(), scope.call_sites(await first.fleet.scope.last_here(), None))
    await run_until([second], asked.done)
    capture, _ = asked.result()
    assert {rank.rank for rank in capture.ranks if rank.flight is not None} >= set(second.ranks)
    await end(nodes)


async def test_call_sites_of_some_leave_the_other_ranks_as_they_are(tmp_path: Path) -> None:
    """The very same objects: what was found out about thousands of ranks need not be found out again."""
    nodes, first, second = await report_on_two(tmp_path)
    before = await first.fleet.scope.last_here()
    asked = asyncio.ensure_future(first.watch.scope.call_sites(before, second.ranks))
    await run_until([second], asked.done)
    after = asked.result()
    assert all(one is two for one, two in zip(before.ranks, after.ranks, strict=True))
    await end(nodes)


async def test_a_node_without_an_agent(tmp_path: Path) -> None:
    """Its rank is not blamed for what the others were seen to do, though all of them wait for it, too; and it is said that it was
    not seen."""
    shared, whole = LocalExchange(), load("tensor_parallel")
    spread = spread_ranks(whole, 3)
    nodes = [Node(f"n{n}", shared, tmp_path / f"n{n}", whole, spread[n]) for n in (1, 2)]
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    for node in nodes:
        assert node.bundles[0].verdict.culprit_ranks == (1, 2)
        assert any("no agent reports rank 0" in what for what in node.bundles[0].missing)
    await end(nodes)


@pytest.mark.usefixtures("long")
async def test_another_goes_on_with_the_incident(tmp_path: Path) -> None:
    """The holder dies in the middle of one: it stays open under its id, nobody is notified twice, and the next one ends it."""
    shared = LocalExchange()
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda _: shared)
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    first = leader(nodes)
    second = next(node for node in nodes if node is not first)
    await first.die()
    await run_until(
        [second],
        lambda: second.fleet.leads and second.owns_incident,
    )
    assert second.announced == []
    assert second.watch.incidents.record is not None
    assert second.watch.incidents.record.incident.id == first.announced[0].id
    second.reader.moving = True
    await run_until([second], lambda: second.announced)
    assert [(one.id, one.ended_at is not None) for one in second.announced] == [(first.announced[0].id, True)]
    await end([second])


@pytest.mark.usefixtures("long")
async def test_one_that_was_not_there_goes_on_with_the_incident(tmp_path: Path) -> None:
    """Its agent was started when all who know of the incident were gone: it takes it up under its id, and tells of its end."""
    shared = LocalExchange()
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda _: shared)
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    known = leader(nodes).announced[0].id
    for node in nodes:
        await node.die()
    late = Node(nodes[1].name, shared, tmp_path / "late", nodes[1].whole, nodes[1].ranks)
    await run_until(
        [late],
        lambda: late.fleet.leads and late.owns_incident,
    )
    assert [document.id for document in late.bundles] == [known]
    assert late.announced == []
    late.reader.moving = True
    await run_until([late], lambda: late.announced)
    assert [(one.id, one.ended_at is not None) for one in late.announced] == [(known, True)]
    await end([late])


@pytest.mark.usefixtures("long")
async def test_one_that_comes_back_learns_of_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent died in the middle of an incident, and is started again when the others have long forgotten its end."""
    monkeypatch.setattr(fleet_incident, "FORGOTTEN_S", 1.0)
    shared = LocalExchange()
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda _: shared)
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    first = leader(nodes)
    second = next(node for node in nodes if node is not first)
    await first.die()
    second.reader.moving = True
    await run_until([second], lambda: second.announced)
    shared._kept = {place: kept for place, kept in shared._kept.items() if place[0] not in {"notice", "blob"}}
    back = Node(first.name, shared, first.state_dir, first.whole, first.ranks)
    back.reader.moving = True
    identities = tuple(back.watch.ranks.known.values())
    left = LeftOpen(first.announced[0], first.whole, first.state_dir / "incidents" / first.announced[0].id, identities)
    back.watch.resume(left, time.monotonic())
    assert back.watch.incidents.open_record is not None
    await run_until([second, back], lambda: back.watch.incidents.open_record is None)
    assert [(document.id, document.ended_at is not None) for document in back.bundles] == [
        (first.announced[0].id, True)
    ]
    await end([second, back])


class Failing(LocalExchange):
    """An exchange that can be out of reach."""

    down = False

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        """Fail, or do as it should."""
        if self.down:
            raise ExchangeError("cut by a test")
        await super().publish(channel, node, digest, expiry_s)


async def test_without_the_exchange_each_goes_on_by_itself(tmp_path: Path) -> None:
    """Then its incident says that it was out of reach; and it is one fleet again when the exchange is back."""
    exchanges = [Failing(), Failing()]
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda n: exchanges[n])
    exchanges[1]._kept = exchanges[0]._kept
    for node in nodes:
        node.reader.moving = True
    await run_until(nodes, lambda: any(node.fleet.leads for node in nodes))
    for exchange in exchanges:
        exchange.down = True
    await run_until(nodes, lambda: all(not n.fleet.leads and not n.fleet.follows for n in nodes))
    for node in nodes:
        assert any("unreachable since" in str(gap) and "cut by a test" in str(gap) for gap in node.fleet.gaps)
    assert not any(node.announced for node in nodes)
    for exchange in exchanges:
        exchange.down = False
    await run_until(nodes, lambda: sum(n.fleet.leads for n in nodes) == 1 and sum(n.fleet.follows for n in nodes) == 1)
    assert all(node.fleet.gaps == () for node in nodes)
    await end(nodes)


@pytest.mark.usefixtures("long")
async def test_a_silent_node_is_lost_only_where_its_host_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent and ranks silent: with a host that answers nobody claims that the node is lost, with one that does not it is."""
    up = {"there": True}

    async def does_answer(address: str) -> bool:
        return address != "10.0.0.2" or up["there"]

    monkeypatch.setattr(fleet_link, "does_answer", does_answer)
    shared = LocalExchange()
    nodes = make_nodes("tensor_parallel", 3, tmp_path, lambda _: shared)
    for number, node in enumerate(nodes):
        object.__setattr__(node.fleet.writer, "address", f"10.0.0.{number}")
        node.reader.moving = True
    await run_until(nodes, lambda: any(len(n.fleet.link.members.members) == 2 for n in nodes))
    await nodes[2].die()
    rest = nodes[:2]
    await run_until(rest, lambda: any(n.fleet.leads for n in rest))
    answers = lambda: [n.fleet.link.members.members["n2"].answers for n in rest if n.fleet.leads]  # noqa: E731
    await run_until(rest, lambda: answers() == [True])
    assert not any(node.announced for node in rest)
    up["there"] = False
    await run_until(rest, lambda: answers() == [False])
    for node in rest:
        node.reader.moving = False
    await run_until(rest, lambda: any(node.announced for node in rest))
    verdict = next(node for node in rest if node.announced).announced[0].verdict
    assert verdict.kind == "rank_lost"
    assert not verdict.proven
    assert verdict.culprit_ranks == nodes[2].ranks
    assert verdict.cause is not None
    assert verdict.cause.id == "node-lost"
    await end(rest)


async def test_redis_is_restarted_in_the_middle_of_an_incident(jobs: JobRunner, tmp_path: Path) -> None:
    """It comes back with nothing in it: the incident is the same, nobody is notified of it again, and one node leads."""
    server = RedisServer(jobs, find_free_port())
    server.start()
    nodes = make_nodes(PROVEN[0], 2, tmp_path, lambda _: RedisExchange(server.url))
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    known = leader(nodes).announced[0].id
    server.kill()
    await run_until(nodes, lambda: all(not n.fleet.leads and not n.fleet.follows for n in nodes))
    assert all("Redis" in str(node.fleet.gaps[0]) for node in nodes)
    server.start()
    await run_until(nodes, lambda: sum(n.fleet.leads for n in nodes) == 1 and sum(n.fleet.follows for n in nodes) == 1)
    assert [one.id for node in nodes for one in node.announced] == [known]
    assert {document.id for node in nodes for document in node.bundles} == {known}
    for node in nodes:
        node.reader.moving = True
    await run_until(nodes, lambda: all(node.watch.incidents.open_record is None for node in nodes))
    assert [one.id for node in nodes for one in node.announced if one.ended_at is not None] == [known]
    await end(nodes)
    for node in nodes:
        await node.exchange.close()
