"""The ranks of several hosts are started anew, in one job: what was there before never speaks for what is there now."""

from __future__ import annotations

import re

import pytest
from cluster import NODES, SECRET, Cluster, assert_licence_is_awaited
from watched_runs import find_bundles

from documentation import ROOT
from hangwatch.outputs.push.audit import read_audit
from support import wait_for

_RESTARTS = ("--max-restarts", "50")
_PAIR = 2
#: Two nodes are enough, and a third may come.
_RANGE = f"{_PAIR}:{NODES}"
#: A store of its own for each start. The one that torchrun 2.13 shares between them is no place for a node that joins: it waits
#: there for a word that was given at the first start alone.
_APART = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def lives(cluster: Cluster) -> list[tuple[str, str]]:
    """Process (by its host's own number) and world size of each rank, as it has said when it began to train."""
    files = sorted(cluster.folder.glob("life-*"))
    return [(pid, size) for pid, _, size in (file.read_text().partition(" ") for file in files)]


def wait_for_lives(cluster: Cluster, before: list[tuple[str, str]], ranks: int = NODES) -> None:
    """Wait until all ranks of all nodes have begun anew, in one world. Processes of two hosts may have the same number."""

    def begun() -> bool:
        now = lives(cluster)
        sizes = {size for _, size in now}
        anew = all(one != other for one, other in zip(now, before, strict=False))
        return len(now) == ranks and sizes == {str(ranks)} and anew

    wait_for(begun, 120.0, "all ranks to begin anew")


def start_watching(cluster: Cluster) -> None:
    """Start all but the job."""
    cluster.patience_s = 15  # on a busy machine a rank that ends takes seconds to go, and the others wait for it
    cluster.start_redis()
    cluster.start_receiver()
    cluster.start_agents()


@pytest.mark.soak  # the incident of the leader may lack the ranks of other nodes, which is not understood
def test_a_node_joins_then_a_rank_fails_then_a_hang_is_restarted(cluster: Cluster) -> None:
    """Each time torchrun starts all ranks anew, and of the first two nothing is said.

    At first it ends the two ranks there are and starts three, in another world and at another port; then as many, at the same
    place. In the store that torchrun's starts share by default some starts fail, and now and then none succeeds within minutes.
    A rank that hangs then is named by every node, among the ranks that live now. Each agent ends its own ranks, once.
    """
    cluster.secret = SECRET
    cluster.settings = '[on_hang]\naction = "restart"\n'
    start_watching(cluster)
    for number in (0, 1):
        cluster.launch(number, *_RESTARTS, "--rdzv-conf", "last_call_timeout=5", nodes=_RANGE, env=_APART)
    cluster.wait_for_steps(60, ranks=2)
    before = lives(cluster)
    cluster.launch(2, *_RESTARTS, nodes=_RANGE, env=_APART)
    wait_for_lives(cluster, before)
    cluster.wait_for_steps(60)
    before = lives(cluster)
    (cluster.folder / "fail-1").touch()
    wait_for_lives(cluster, before)
    cluster.wait_for_steps(60)
    assert not any(cluster.incidents(number) for number in range(NODES))

    before = lives(cluster)
    cluster.hang(0)
    wait_for((cluster.folder / "pipe-0").exists, 60.0, "rank 0 to hang")
    (cluster.folder / "hang-0").unlink()
    wait_for_lives(cluster, before)
    cluster.wait_for_steps(60)
    found = cluster.wait_for_incidents()
    assert len({incident.id for incident in found}) == 1
    for incident, host in zip(found, cluster.nodes, strict=True):
        assert_licence_is_awaited(incident, 0)
        assert incident.job.id == "job"
        assert incident.job.world_size == NODES
        (bundle,) = find_bundles(host.state)
        (taken,) = read_audit(bundle).actions
        assert taken.action == "restart"
        assert taken.outcome.startswith(("1 process ended; torchrun restarts", "no process of the job was left"))
    assert [read_audit(find_bundles(host.state)[0]).actions[0].outcome[0] for host in cluster.nodes].count("1") > 0
    leader, names = cluster.wait_for_alert(), [host.name for host in cluster.nodes]
    # It may report before it has heard of the others.
    wait_for(lambda: [rank.node for rank in cluster.incidents(leader)[0].ranks] == names, what="the ranks of all nodes")
    whole = cluster.incidents(leader)[0]
    assert [str(rank.pid) for rank in whole.ranks] == [pid for pid, _ in before]
    assert [alert["status"] for alert in cluster.alerts()].count("firing") == 1


def test_the_command_is_run_again_on_all_nodes(cluster: Cluster) -> None:
    """Where no launcher restarts, each ``hangwatch run`` does, and the ranks meet again at the address they were given.

    The second time that a node has the culprit the user's command, by the line of the documentation, leaves it out.
    """
    cluster.exchange = None
    names = [host.name for host in cluster.nodes[:_PAIR]]
    (cluster.folder / "hosts").write_text("".join(f"{name}\n" for name in names))
    (line,) = re.findall(r"^grep .* hosts > hosts.next$", (ROOT / "docs" / "actions.md").read_text(), re.MULTILINE)
    cluster.secret = SECRET
    cluster.run_options = ("--on-hang", f"restart,exec:cd {cluster.folder} && {line}", "--max-restarts", "2")
    cluster.start_receiver()
    for number in range(_PAIR):
        cluster.launch(number, nodes=str(_PAIR), static=True, run=True)
    cluster.wait_for_steps(60, ranks=_PAIR)
    before = lives(cluster)
    cluster.hang(0)
    wait_for((cluster.folder / "pipe-0").exists, 60.0, "rank 0 to hang")
    (cluster.folder / "hang-0").unlink()
    wait_for_lives(cluster, before, _PAIR)
    cluster.wait_for_steps(60, ranks=_PAIR)
    found = cluster.wait_for_incidents(range(_PAIR))
    assert len({incident.id for incident in found}) == 1
    for number, incident in enumerate(found):
        assert_licence_is_awaited(incident, 0)
        cluster.agents[number].wait_for_output(" in 1 s (restart 1 of 2)", 60.0)
    assert (cluster.folder / "hosts.next").read_text().split() == names
    before = lives(cluster)
    (cluster.folder / "pipe-0").unlink()
    cluster.hang(0)
    wait_for((cluster.folder / "pipe-0").exists, 60.0, "rank 0 to hang again")
    (cluster.folder / "hang-0").unlink()
    wait_for_lives(cluster, before, _PAIR)
    for number in range(_PAIR):
        last = cluster.incidents(number)[-1].history
        assert last is not None
        assert (last.number, last.exclude_nodes) == (2, (names[0],))
    assert (cluster.folder / "hosts.next").read_text().split() == names[1:]
    (cluster.folder / "end").touch()
    assert [cluster.agents[number].wait(120.0) for number in range(_PAIR)] == [0] * _PAIR
