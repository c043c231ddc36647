"""Groups whose members are on several nodes: each node's agent reads its own beats, and what the others claim."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.claims import (
    CLAIMS_VERSION,
    ClaimsElsewhere,
    JobOfWorld,
    NodeClaims,
    encode_claims,
    parse_claims,
)
from hangwatch.model.numbers import is_guest
from hangwatch.model.transforms.published import PublishedError
from hangwatch.sources.beats import worlds as worlds_module
from hangwatch.sources.beats.worlds import Worlds

TRAINERS, ENGINES, MET = "tcp://10.0.0.1:29500", "tcp://127.0.0.1:5000", "tcp://10.0.0.1:41000"
JOB = JobOfWorld("job", "channel", "10.0.0.1:41000", 2)


class Agent:
    """One node's agent, as far as it reads beats. ``node`` is its machine."""

    def __init__(self, node: str, beats: dict[int, Beat], patch: pytest.MonkeyPatch) -> None:
        self.node, self.beats, self.worlds, self._patch = node, beats, Worlds(), patch

    def read(self) -> dict[int, Beat]:
        with self._patch.context() as patch:
            patch.setattr(worlds_module, "node_key", lambda: self.node)
            return self.worlds.resolve(self.beats)

    def claims(self, job: JobOfWorld | None = JOB) -> NodeClaims:
        """What it publishes, through the bytes that travel."""
        opened = self.worlds.open
        known = tuple(msgspec.structs.replace(w, job=job) for w in opened.worlds)
        return parse_claims(encode_claims(NodeClaims(CLAIMS_VERSION, 0, known, opened.groups)))


def beat(pid: int, rank: int, *groups: BeatGroup, store: str = TRAINERS, size: int = 2, launched: bool = True) -> Beat:
    own = BeatGroup("0", tuple(range(size)), description="default_pg")
    local = rank if launched else None
    return Beat(1, pid, 1, 1, 1, rank, size, local, True, groups=(own, *groups), store=store)


def weights(place: int, size: int = 3) -> BeatGroup:
    return BeatGroup("weights", tuple(range(size)), place=place, size=size, store=MET, foreign=True)


def trainers() -> dict[int, Beat]:
    return {10: beat(10, 0, weights(0)), 11: beat(11, 1)}


def engine(*places: int, store: str = ENGINES) -> dict[int, Beat]:
    """A worker a place, all of one engine."""
    return {
        20 + rank: beat(20 + rank, rank, weights(place), store=store, size=len(places), launched=False)
        for rank, place in enumerate(places)
    }


def exchange(*agents: Agent, fresh: bool = True, job: JobOfWorld | None = JOB) -> list[dict[int, Beat]]:
    """Each reads its beats, then what the others claim."""
    for agent in agents:
        agent.read()
    said = {agent.node: ClaimsElsewhere(agent.claims(job), fresh) for agent in agents}
    for agent in agents:
        agent.worlds.elsewhere = tuple(claims for node, claims in said.items() if node != agent.node)
    return [agent.read() for agent in agents]


def test_both_nodes_know_all_members_by_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer 0 is on one node and an engine of two workers on another: the trainers keep their ranks on both."""
    here, there = Agent("a", trainers(), monkeypatch), Agent("b", engine(1, 2), monkeypatch)
    ours, theirs = exchange(here, there)
    group = ours[10].groups[-1]
    assert group.ranks[0] == 0
    assert all(map(is_guest, group.ranks[1:]))
    assert group.outside == ()
    assert [theirs[pid].groups[-1] for pid in (20, 21)] == [msgspec.structs.replace(group, place=p) for p in (1, 2)]
    assert [theirs[pid].number for pid in (20, 21)] == list(group.ranks[1:])
    assert (ours[10].number, ours[11].number) == (None, None)
    assert there.worlds.jobs == {20: JOB, 21: JOB}
    assert [world.store for world in here.worlds.linked] == [TRAINERS]


@pytest.mark.parametrize(("fresh", "job"), [(False, JOB), (True, None)], ids=["silent", "job-not-known"])
def test_an_agent_that_is_silent_claims_nothing(
    fresh: bool, job: JobOfWorld | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes' places are unknown, and so is who is in the group as long as the job of the others is not known."""
    here, there = Agent("a", trainers(), monkeypatch), Agent("b", engine(1, 2), monkeypatch)
    ours, theirs = exchange(here, there, fresh=fresh, job=job)
    assert theirs[20].groups[-1].outside == (0,)
    assert there.worlds.jobs == {}
    if not fresh:
        assert (ours[10].groups[-1].ranks, ours[10].groups[-1].outside) == ((0,), (1, 2))


def test_engines_on_two_machines_at_one_loopback_address_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its world at 127.0.0.1:5000 of its own machine."""
    agents = [Agent("a", trainers(), monkeypatch)]
    agents += [Agent(node, engine(place), monkeypatch) for node, place in (("b", 1), ("c", 2))]
    ours, *theirs = exchange(*agents)
    ranks = ours[10].groups[-1].ranks
    assert ours[10].groups[-1].outside == ()
    assert len(set(ranks)) == 3
    assert [one[20].number for one in theirs] == list(ranks[1:])


def test_two_claims_of_one_place_count_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines on two nodes say that they are place 1."""
    agents = [Agent("a", trainers(), monkeypatch)]
    agents += [Agent(node, engine(1), monkeypatch) for node in ("b", "c")]
    ours, *_ = exchange(*agents)
    assert (ours[10].groups[-1].ranks, ours[10].groups[-1].outside) == ((0,), (1, 2))


def test_a_world_of_which_a_node_may_not_know_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an engine of two workers one is in the group, and the other one elsewhere: its node would take it for a job."""
    part = {20: beat(20, 0, weights(1), store="tcp://10.0.0.2:5000", size=2, launched=False)}
    ours, theirs = exchange(Agent("a", trainers(), monkeypatch), Agent("b", part, monkeypatch))
    assert (ours[10].groups[-1].ranks, ours[10].groups[-1].outside) == ((0,), (1, 2))
    assert theirs[20].number is None


def test_a_job_that_spans_nodes_keeps_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer 1 is on a third node, whose agent knows nothing of the group: the trainers stay what they are, however large
    the engine is."""
    some = {10: beat(10, 0, weights(0, 4))}
    workers = {20 + n: beat(20 + n, n, weights(1 + n, 4), store=ENGINES, size=3) for n in range(3)}
    ours, theirs = exchange(Agent("a", some, monkeypatch), Agent("b", workers, monkeypatch))
    ranks = ours[10].groups[-1].ranks
    assert (ranks[0], ours[10].number) == (0, None)
    assert [theirs[pid].number for pid in sorted(theirs)] == list(ranks[1:])
    assert all(map(is_guest, ranks[1:]))


def test_a_worker_that_is_gone_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it waits for that process; also where it was the only one there."""
    here, there = Agent("a", trainers(), monkeypatch), Agent("b", engine(1, 2), monkeypatch)
    before, _ = exchange(here, there)
    for pid in (21, 20):
        del there.beats[pid]
        after, _ = exchange(here, there)
        assert after[10].groups[-1].ranks == before[10].groups[-1].ranks


@given(st.sets(st.sampled_from([0, 1, 2]), min_size=1), st.sets(st.sampled_from([0, 1])))
def test_less_knowledge_never_makes_a_member_of_somebody_else(places: set[int], silent: set[int]) -> None:
    """Whatever claims are missing: a place is of the process that has it, or of nobody."""
    with pytest.MonkeyPatch.context() as patch:
        everyone = [Agent("a", trainers(), patch), Agent("b", engine(1), patch), Agent("c", engine(2), patch)]
        whole = exchange(*everyone)[0][10].groups[-1].ranks
        some = [Agent("a", trainers(), patch)]
        some += [Agent(node, engine(place), patch) for node, place in (("b", 1), ("c", 2)) if place in places]
        for agent in some:
            agent.read()
        said = [ClaimsElsewhere(one.claims(), number not in silent) for number, one in enumerate(some[1:])]
        some[0].worlds.elsewhere = tuple(said)
        group = some[0].read()[10].groups[-1]
        known = [place for place in range(3) if place not in group.outside]
        assert group.ranks == tuple(whole[place] for place in known)
        assert 0 in known


@given(st.binary(max_size=64))
def test_anything_else_is_refused_in_our_own_terms(data: bytes) -> None:
    """Whoever reaches the port may write what he likes."""
    with pytest.raises(PublishedError, match="is "):
        parse_claims(data)
