"""Several real hosts (network, processes and host names of their own): one verdict, whatever fails around it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from cluster import NODES, Cluster, assert_licence_is_awaited
from hosts import kill

from support import wait_for


def test_agents_and_redis_fail_and_nobody_is_blamed(cluster: Cluster) -> None:
    """In a healthy job an agent is killed and comes back, then Redis, then the agent is killed again: nothing is reported.

    Then a rank hangs on a node that has an agent: it is named under one id, also on the node whose agent comes late.
    """
    redis = cluster.start_redis()
    assert redis.job is not None
    cluster.start_receiver()
    cluster.start_agents()
    cluster.start_job()

    kill(cluster.agents[1])
    cluster.wait_for_steps(200)
    cluster.start_agent(1)
    kill(redis.job)
    cluster.agents[0].wait_for_output("peer discovery is unreachable")
    cluster.wait_for_steps(140)
    redis.start()
    for number in (0, 1):
        cluster.agents[number].wait_for_output("peer discovery is back")
    kill(cluster.agents[1])
    cluster.wait_for_steps(200)
    assert not any(cluster.incidents(number) for number in range(NODES))

    cluster.hang(2)
    for incident in cluster.wait_for_incidents((0, 2)):
        assert_licence_is_awaited(incident, 2)
        # What Redis knew of n1 it has lost, unless the agent there wrote it again before it was killed.
        unseen = [what for what in incident.missing if "the agent of n1" in what or "no agent reports rank 1" in what]
        assert unseen, incident.missing
        assert not any("does not answer" in what for what in unseen)
    cluster.start_agent(1)
    found = cluster.wait_for_incidents()
    assert len({incident.id for incident in found}) == 1
    assert_licence_is_awaited(found[1], 2)
    cluster.wait_for_alert()
    assert len(cluster.hang_alerts()) == 1


@pytest.mark.waits
def test_clocks_differ_the_holder_of_the_lease_dies_and_a_node_is_lost(cluster: Cluster) -> None:
    """One after the other, in one job."""
    known, first = _clocks_differ(cluster)
    _holder_dies(cluster, known, first)
    _node_is_lost(cluster, known)


def _clocks_differ(cluster: Cluster) -> tuple[str, int]:
    """One node is seven minutes ahead and one is four behind: a healthy job is left alone, and a hang is reported as ever.

    Return the incident and the node that has told of it.
    """
    ahead_s = (0, 420, -240)
    cluster.start_redis()
    cluster.start_receiver()
    for host, by_s in zip(cluster.nodes, ahead_s, strict=True):
        host.set_clock(by_s)
    cluster.start_agents()
    cluster.start_job(static=True)
    cluster.wait_for_steps(120)
    assert not any(cluster.incidents(number) for number in range(NODES))
    began = datetime.now(timezone.utc)
    cluster.hang(2)
    found = cluster.wait_for_incidents()
    (known,) = {incident.id for incident in found}
    for incident in found:
        assert_licence_is_awaited(incident, 2)
    first = cluster.wait_for_alert()
    assert len(cluster.hang_alerts()) == 1
    # All its times are of one clock, that of the node which tells; others' are known to some seconds.
    began += timedelta(seconds=ahead_s[first] - 5)
    reported = found[first]
    onset, detected = (
        datetime.fromisoformat(at.replace("Z", "+00:00")) for at in (reported.onset_at, reported.detected_at)
    )
    assert began < onset < detected
    return known, first


def _holder_dies(cluster: Cluster, known: str, first: int) -> None:
    """Another one goes on with the same incident; the one that died and comes back opens no other; one alert, one end."""
    kill(cluster.agents[first])
    others = [number for number in range(NODES) if number != first]
    # Whoever tells now has the bundle of the whole job, as far as there are agents.
    whole = lambda: [n for n in others if len(cluster.incidents(n)[0].ranks) >= NODES - 1]  # noqa: E731
    wait_for(whole, 60.0, "another one to go on with the incident")
    cluster.start_agent(first)
    cluster.go_on(2)
    over = lambda: all(found.ended_at is not None for n in range(NODES) for found in cluster.incidents(n))  # noqa: E731
    wait_for(over, 60.0, "the incident to be over on every node")
    cluster.wait_for_steps(60)
    for incident in cluster.wait_for_incidents():
        assert incident.id == known
        assert_licence_is_awaited(incident, 2)
    wait_for(lambda: len(cluster.hang_alerts()) > 1, 60.0, "its end to be reported")
    assert [(alert["incident_id"], alert["status"]) for alert in cluster.hang_alerts()] == [
        (known, "firing"),
        (known, "resolved"),
    ]


def _node_is_lost(cluster: Cluster, known: str) -> None:
    """Its link goes down in the middle of training: the others name it and its rank; it says that it sees only its own."""
    cluster.wait_for_steps(60)  # long enough for its host to have been asked
    cluster.network[2].cut()
    cluster.wait_for_incidents((0, 1), known={known})
    # With so little patience it is a stall at first: it takes longer to know that a node is silent.
    new = lambda: [found for n in (0, 1) for found in cluster.incidents(n) if found.id != known]  # noqa: E731
    wait_for(lambda: all(found.verdict.kind == "rank_lost" for found in new()), 60.0, "the node to be known as lost")
    for incident in cluster.wait_for_incidents((0, 1), known={known}):
        assert incident.verdict.culprit_ranks == (2,)
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id == "node-lost"
        assert "n2" in incident.verdict.cause.explanation
    cluster.agents[2].wait_for_output("peer discovery is unreachable")


@pytest.mark.soak
def test_the_way_to_the_exchange_loses_packets(cluster: Cluster) -> None:
    """A fifth of all that goes to Redis and comes from it: nobody is blamed, and then a hang is named from every node.

    A node that the losses have cut off for a while may say meanwhile that it sees its own rank alone.
    """
    cluster.start_redis()
    cluster.start_agents()
    cluster.start_job()
    cluster.wait_for_steps(60)
    cluster.aside.lose(0.2)
    cluster.wait_for_steps(240)
    assert not any(cluster.incidents(number) for number in range(NODES))
    cluster.hang(2)
    named = lambda: all(  # noqa: E731
        any(found.verdict.culprit_ranks == (2,) for found in cluster.incidents(n)) for n in range(NODES)
    )
    wait_for(named, 120.0, "every node to name the rank")
    for number in range(NODES):
        for incident in cluster.incidents(number):
            if not any("unreachable since" in what for what in incident.missing):
                assert_licence_is_awaited(incident, 2)
            else:
                assert incident.verdict.culprit_ranks in {(), (2,)}
                assert not incident.verdict.proven


def test_torch_store_beside_rank_0(cluster: Cluster) -> None:
    """No server at all: the rank that hangs is named by every node; when the store's agent is gone the others say so.

    It comes back, and the job goes on. Then its host is gone, in the middle of training: each other node goes on by itself, says
    so, and tells of its own rank alone.
    """
    cluster.exchange = "tcp"
    cluster.start_agents()
    cluster.start_job()
    cluster.wait_for_steps(60)
    cluster.hang(1)
    found = cluster.wait_for_incidents()
    assert len({incident.id for incident in found}) == 1
    assert all(incident.verdict.culprit_ranks == (1,) for incident in found)
    kill(cluster.agents[0])
    for number in (1, 2):
        cluster.agents[number].wait_for_output("peer discovery is unreachable")
        assert len(cluster.incidents(number)) == 1

    cluster.start_agent(0)
    for number in (1, 2):
        cluster.agents[number].wait_for_output("peer discovery is back")
    cluster.go_on(1)
    everywhere = lambda: [incident for n in range(NODES) for incident in cluster.incidents(n)]  # noqa: E731
    wait_for(lambda: all(incident.ended_at for incident in everywhere()), 60.0, "the incident to be over")
    cluster.wait_for_steps(60)
    known = {incident.id for incident in everywhere()}
    cluster.network[0].cut()
    unreachable = lambda n: cluster.agents[n].stderr().count("peer discovery is unreachable")  # noqa: E731
    for number in (1, 2):
        wait_for(lambda number=number: unreachable(number) > 1, 60.0, "the others to say so again")
    for number, incident in zip((1, 2), cluster.wait_for_incidents((1, 2), warning=True, known=known), strict=True):
        assert incident.verdict.waiting_ranks == (number,)
        assert not incident.verdict.proven
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id == "unknown"
        assert any("unreachable since" in what for what in incident.missing)
