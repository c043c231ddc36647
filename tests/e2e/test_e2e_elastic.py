"""The ranks of several hosts are started anew, in one job: what was there before never speaks for what is there now."""

from __future__ import annotations

import re

from cluster import NODES, SECRET, Cluster, assert_licence_is_awaited
from watched_runs import find_bundles

from documentation import ROOT
from hangwatch.outputs.push.audit import read_audit
from support import wait_for

_RESTARTS = ("--max-restarts", "50")
#: Two nodes are enough, and a third may come.
_RANGE = f"2:{NODES}"
#: A store of its own for each start. The one that torchrun 2.13 shares between them is no place for a node that joins: it waits
#: there for a word that was given at the first start alone.
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


def start_watching(cluster: Cluster) -> None:
    """Start all but the job."""
    cluster.patience_s = 15  # on a busy machine a rank that ends takes seconds to go, and the others wait for it
    cluster.start_redis()
    cluster.start_receiver()
    cluster.start_agents()


def assert_who_hangs_is_named(cluster: Cluster) -> None:
    """Nothing was reported before; a rank that hangs now is named by every node, among the ranks that live now."""
    cluster.wait_for_steps(60)
    assert not any(cluster.incidents(number) for number in range(NODES))
    cluster.hang(0)
    # On a busy machine a rank that hangs is a straggler first.
    hangs = lambda n: any(incident.verdict.kind != "straggler" for incident in cluster.incidents(n))  # noqa: E731
    wait_for(lambda: all(hangs(number) for number in range(NODES)), 60.0, "every node to say that it hangs")
    found = cluster.wait_for_incidents()
    assert len({incident.id for incident in found}) == 1
    for incident in found:
        assert_licence_is_awaited(incident, 0)
        assert incident.job.id == "job"
        assert incident.job.world_size == NODES
    whole = found[cluster.wait_for_alert()]
    assert [rank.node for rank in whole.ranks] == [host.name for host in cluster.nodes]
    assert [str(rank.pid) for rank in whole.ranks] == [pid for pid, _ in lives(cluster)]
    assert len(cluster.hang_alerts()) == 1


def test_a_node_joins(cluster: Cluster) -> None:
    """torchrun ends the two ranks there are and starts three, in another world and at another port."""
    start_watching(cluster)
    for number in (0, 1):
        cluster.launch(number, *_RESTARTS, "--rdzv-conf", "last_call_timeout=5", nodes=_RANGE, env=_APART)
    cluster.wait_for_steps(60, ranks=2)
    before = lives(cluster)
    cluster.launch(2, *_RESTARTS, nodes=_RANGE, env=_APART)
    wait_for_lives(cluster, before)
    assert_who_hangs_is_named(cluster)


def test_a_rank_fails(cluster: Cluster) -> None:
    """As many ranks are started anew, at the same place.

    In the store that torchrun's starts share by default some starts fail, and now and then none succeeds within minutes.
    """
    start_watching(cluster)
    for number in range(NODES):
        cluster.launch(number, *_RESTARTS, env=_APART)
    cluster.wait_for_steps(60)
    before = lives(cluster)
    (cluster.folder / "fail-1").touch()
    wait_for_lives(cluster, before)
    assert_who_hangs_is_named(cluster)


def test_a_hang_is_restarted_on_all_nodes(cluster: Cluster) -> None:
    """Each agent ends its own ranks, once; torchrun starts all anew, and they train again."""
    cluster.secret = SECRET
    cluster.settings = '[on_hang]\naction = "restart"\n'
    start_watching(cluster)
    for number in range(NODES):
        cluster.launch(number, *_RESTARTS, env=_APART)
    cluster.wait_for_steps(60)
    before = lives(cluster)
    cluster.hang(0)
    wait_for((cluster.folder / "pipe-0").exists, 60.0, "rank 0 to hang")
    (cluster.folder / "hang-0").unlink()
    wait_for_lives(cluster, before)
    cluster.wait_for_steps(60)
    for number, host in enumerate(cluster.nodes):
        (incident,) = cluster.incidents(number)
        assert_licence_is_awaited(incident, 0)
        (bundle,) = find_bundles(host.state)
        (taken,) = read_audit(bundle).actions
        assert taken.action == "restart"
        assert taken.outcome.startswith(("1 process ended; torchrun restarts", "no process of the job was left"))
    assert [read_audit(find_bundles(host.state)[0]).actions[0].outcome[0] for host in cluster.nodes].count("1") > 0


def test_the_command_is_run_again_on_all_nodes(cluster: Cluster) -> None:
    """Where no launcher restarts, each ``hangwatch run`` does, and the ranks meet again at the address they were given.

    The second time that a node has the culprit the user's command, by the line of the documentation, leaves it out.
    """
    cluster.exchange = None
    names = [host.name for host in cluster.nodes]
    (cluster.folder / "hosts").write_text("".join(f"{name}\n" for name in names))
    (line,) = re.findall(r"^grep .* hosts > hosts.next$", (ROOT / "docs" / "actions.md").read_text(), re.MULTILINE)
    cluster.secret = SECRET
    cluster.run_options = ("--on-hang", f"restart,exec:cd {cluster.folder} && {line}", "--max-restarts", "2")
    cluster.start_receiver()
    for number in range(NODES):
        cluster.launch(number, static=True, run=True)
    cluster.wait_for_steps(60)
    before = lives(cluster)
    cluster.hang(0)
    wait_for((cluster.folder / "pipe-0").exists, 60.0, "rank 0 to hang")
    (cluster.folder / "hang-0").unlink()
    wait_for_lives(cluster, before)
    cluster.wait_for_steps(60)
    found = cluster.wait_for_incidents()
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
    wait_for_lives(cluster, before)
    for number in range(NODES):
        last = cluster.incidents(number)[-1].history
        assert last is not None
        assert (last.number, last.exclude_nodes) == (2, (names[0],))
    assert (cluster.folder / "hosts.next").read_text().split() == names[1:]
    (cluster.folder / "end").touch()
    assert [cluster.agents[number].wait(120.0) for number in range(NODES)] == [0] * NODES
