"""Connections between nodes: which are asked about, and where the answers lead."""

from __future__ import annotations

import msgspec

from hangwatch.agent.fleet.merge import merge
from hangwatch.agent.fleet.scope import add_asked, find_connections
from hangwatch.model.capture import Capture, RankCapture, RankIdentity
from hangwatch.model.numbers import guest_number
from hangwatch.model.processes import ThreadSample
from hangwatch.model.stacks import Frame
from worlds import collective_frames, rank, samples, world

ASKS = (Frame("scores", "/srv/train/train.py", 31, "reply = connection.getresponse()"),)
OWN, OTHER = "10.0.0.1:40000", "10.0.0.2:8000"
SERVER = guest_number("process 500", 0)


def blocked(number: int, frames: tuple[Frame, ...] = ASKS) -> RankCapture:
    """A rank that reads from another node."""
    made = rank(number, (), frames)
    read = tuple(msgspec.structs.replace(p, elsewhere=OTHER, own_end=OWN) for p in made.processes)
    return msgspec.structs.replace(made, processes=read)


def answer(*serves: str) -> Capture:
    """What the other node says: its server has the other ends of these."""
    identity = RankIdentity(SERVER, 500, 1.0, "node-1", world="reward[500]")
    return world(RankCapture(identity, samples(500), serves=serves))


def test_only_what_asks_beside_the_job_is_asked_about() -> None:
    """A rank in a collective, or in torch's store, has connections to other ranks."""
    capture = world(blocked(0), blocked(1, collective_frames("all_reduce")), rank(2, (), ASKS))
    assert find_connections(capture) == {(OWN, OTHER)}


def test_a_thread_asks_as_the_main_thread_does() -> None:
    """Its connection is its own."""
    made = rank(0, (), ASKS)
    thread = ThreadSample(7, "S", elsewhere=OTHER, own_end=OWN)
    last = msgspec.structs.replace(made.processes[-1], threads=(thread,))
    capture = world(msgspec.structs.replace(made, processes=(*made.processes[:-1], last)))
    assert find_connections(capture) == {(OWN, OTHER)}
    led = add_asked(capture, [answer(f"{OWN} {OTHER}")]).ranks[0].processes[-1].threads[0]
    assert (led.answering, led.elsewhere) == (SERVER, "")


def test_the_other_end_leads_to_its_process() -> None:
    """Which is captured with the job; the end of another connection leads nowhere."""
    capture = add_asked(world(blocked(0), rank(1, (), ASKS)), [answer(f"{OWN} {OTHER}")])
    assert [one.rank for one in capture.ranks] == [0, 1, SERVER]
    asking = capture.ranks[0].sample
    assert asking is not None
    assert (asking.answering, asking.elsewhere) == (SERVER, "")
    assert capture.ranks[-1].serves == ()

    other = add_asked(world(blocked(0)), [answer(f"{OWN} 10.0.0.2:8001")]).ranks[0].sample
    assert other is not None
    assert (other.answering, other.elsewhere) == (None, OTHER)


def test_of_two_that_have_one_end_it_is_not_known_which() -> None:
    """Both nodes have a machine of the client's address on them."""
    other = RankCapture(RankIdentity(guest_number("process 600", 0), 600, 1.0, "node-2"), serves=(f"{OWN} {OTHER}",))
    asking = add_asked(world(blocked(0)), [answer(f"{OWN} {OTHER}"), world(other)]).ranks[0].sample
    assert asking is not None
    assert (asking.answering, asking.elsewhere) == (None, OTHER)


def test_a_rank_may_serve_others() -> None:
    """It is in the capture already, and not taken twice."""
    serving = world(RankCapture(RankIdentity(1, 1001, 1.0, "node-1"), serves=(f"{OWN} {OTHER}",)))
    capture = add_asked(world(blocked(0), rank(1, (), ASKS)), [serving])
    assert [one.rank for one in capture.ranks] == [0, 1]
    assert capture.ranks[0].processes[-1].answering == 1
    assert capture.ranks[1].processes


def test_nobody_found_changes_nothing() -> None:
    """The rank awaits an answer from an address of which nothing is known."""
    capture = world(blocked(0))
    assert add_asked(capture, [world()]) == capture


def test_processes_beside_the_job_on_other_nodes_are_kept() -> None:
    """They are in no digest: what their node has captured is all that is known of them."""
    whole = merge(world(rank(0, (), ASKS)), {"node-1.ab": answer()}, {}, 0.0)
    assert [one.rank for one in whole.ranks] == [0, SERVER]
