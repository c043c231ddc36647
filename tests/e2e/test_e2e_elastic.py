"""torchrun starts all ranks of several hosts anew, under one run id: what was there before never speaks for what is there now."""

from __future__ import annotations

import pytest
from cluster import NODES, Cluster, assert_licence_is_awaited
from hosts import why_not

from support import wait_for

_REASON = why_not()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(_REASON is not None, reason=_REASON or "")]
#: Two nodes are enough, and a third may come.
_ELASTIC = ("--max-restarts", "3", "--rdzv-conf", "last_call_timeout=5")
_RANGE = f"2:{NODES}"
#: A store of its own for each life. In the one that torchrun 2.13 shares between them, ranks find what their predecessors left.
_APART = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def lives(cluster: Cluster) -> list[tuple[str, str]]:
    """Process (by its host's own number) and world size of each rank, as it has said when it began to train."""
    files = sorted(cluster.folder.glob("life-*"))
    return [(pid, size) for pid, _, size in (file.read_text().partition(" ") for file in files)]


def wait_for_lives(cluster: Cluster, before: list[tuple[str, str]]) -> None:
    """Wait until all ranks of all nodes have begun anew, in one world."""

    def begun() -> bool:
        now = lives(cluster)
        sizes = {size for _, size in now}
        return len(now) == NODES and sizes == {str(NODES)} and not set(now) & set(before)

    wait_for(begun, 120.0, "all ranks to begin anew")


def test_ranks_that_are_started_anew(cluster: Cluster) -> None:
    """A node joins and then a rank fails: nothing is told. A rank that hangs after that is named, among the ranks that live."""
    cluster.patience_s = 20  # on a busy machine a rank that fails takes seconds to go, and the others wait for it
    cluster.start_redis()
    cluster.start_receiver()
    cluster.start_agents()
    for number in (0, 1):
        cluster.launch(number, *_ELASTIC, nodes=_RANGE, env=_APART)
    cluster.wait_for_steps(100, ranks=2)
    two = lives(cluster)
    cluster.launch(2, *_ELASTIC, nodes=_RANGE, env=_APART)
    wait_for_lives(cluster, two)
    cluster.wait_for_steps(100)
    three = lives(cluster)
    (cluster.folder / "fail-1").touch()
    wait_for_lives(cluster, three)
    cluster.wait_for_steps(100)
    assert not any(cluster.incidents(number) for number in range(NODES))

    cluster.hang(0)
    found = cluster.wait_for_incidents()
    assert len({incident.id for incident in found}) == 1
    for incident in found:
        assert_licence_is_awaited(incident, 0)
        assert incident.job.id == "job"
        assert incident.job.world_size == NODES
    whole = found[cluster.wait_for_alert()]
    assert [rank.node for rank in whole.ranks] == [host.name for host in cluster.nodes]
    assert [str(rank.pid) for rank in whole.ranks] == [pid for pid, _ in lives(cluster)]
    assert len(cluster.alerts()) == 1
