"""A rank that waits for a key of a store: those who are connected to that store may set it, and nobody else is to blame."""

from __future__ import annotations

import msgspec

from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture, RankIdentity
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Verdict
from hangwatch.model.numbers import guest_number
from hangwatch.model.processes import ProcessSample, StoreSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from worlds import NOW_NS, SECOND_NS, collective_frames, operation, rank, samples, world

PAIR = Group("0", (0, 1), "default_pg")
BESIDE = (guest_number("process 500", 0), guest_number("process 501", 0))
READS = (
    Frame("Group.receive", "/srv/train/group.py", 31, "return self.kept.get(key)"),
    Frame("train", "/srv/train/train.py", 60),
)
WORKS = (Frame("load", "/srv/engine/engine.py", 12, "time.sleep(600)"), Frame("main", "/srv/engine/engine.py", 80))
ADDRESS = "127.0.0.1:29400"


def reading(number: int, *clients: int, unseen: int = 0) -> RankCapture:
    """A rank without anything in flight, in a wait for a key of a store to which these processes are connected."""
    made = rank(number, (operation(1, PAIR, 1),), READS, channel="poll_schedule_timeout")
    store = StoreSample(ADDRESS, clients, unseen)
    seen = tuple(msgspec.structs.replace(p, syscall="poll", store=store) for p in made.processes)
    return msgspec.structs.replace(made, processes=seen)


def beside(place: int, *, gone: bool = False) -> RankCapture:
    """A process beside the job, at work, or one that has failed."""
    pid, number = 500 + place, BESIDE[place]
    identity = RankIdentity(number, pid, 1.0, "node-0", world=f"engine[{pid}]")
    if gone:
        return RankCapture(identity, (ProcessSample(NOW_NS, pid, "gone"),), log_error=("MemoryError",))
    stacks = tuple(
        StackSample(NOW_NS - (2 - i) * SECOND_NS // 2, (ThreadStack(pid, "MainThread", True, False, False, WORKS),))
        for i in range(3)
    )
    return RankCapture(identity, samples(pid, channel="hrtimer_nanosleep"), stacks)


def job(*others: RankCapture, reader: RankCapture) -> Capture:
    """Rank 0 awaits a key, rank 1 is in a collective that rank 0 has not joined."""
    one = rank(1, (operation(1, PAIR, 1), operation(2, PAIR, 2, done=False)), collective_frames("all_reduce"))
    capture = world(reader, one, *others)
    return msgspec.structs.replace(capture, job=msgspec.structs.replace(capture.job, world_size=2))


def verdict(capture: Capture) -> Verdict:
    """What is said ten seconds after the last collective, at a patience of six."""
    return diagnose(capture, patience=fixed_patience(6.0)).verdict


def test_the_only_other_client_is_named() -> None:
    """It alone may set the key, by whatever name the program has the store; it has work of its own, so it is a warning."""
    found = verdict(job(beside(0), reader=reading(0, 500)))
    assert found.culprit_ranks == (BESIDE[0],)
    assert (found.kind, found.proven) == ("straggler", False)
    assert found.waiting_ranks == (0, 1)


def test_ranks_that_are_not_connected_are_not_named() -> None:
    """Rank 1 is not connected to that store: nobody is named, and what is missing is said."""
    found = verdict(job(reader=reading(0)))
    assert found.culprit_ranks == ()
    assert not found.proven
    assert "rank 0 waits in a store read for a key that no known process is about to set" in found.waits
    assert f"the store at {ADDRESS}" in found.summary


def test_host_of_a_store_waits_while_it_polls_for_the_others() -> None:
    """torch looks every 10 ms whether they have come, now and then by its own store: that is one wait all along."""
    reader = reading(0)
    makes = (
        Frame("__init__", "/srv/train/exchange.py", 24, 'self.store = dist.TCPStore("::1", port, 2, True)'),
        *READS[1:],
    )
    stacks = tuple(
        msgspec.structs.replace(s, threads=(msgspec.structs.replace(s.threads[0], frames=makes),))
        for s in reader.stacks
    )
    polls = tuple(
        msgspec.structs.replace(p, switches=100 * i, syscall="clock_nanosleep") for i, p in enumerate(reader.processes)
    )
    capture = job(reader=msgspec.structs.replace(reader, stacks=stacks, processes=polls))
    found = diagnose(capture, patience=fixed_patience(6.0), min_wait_s=0.5).verdict
    assert found.culprit_ranks == ()
    assert found.kind == "straggler"
    assert found.waiting_ranks == (0, 1)


def test_of_several_clients_none_is_named() -> None:
    """Two processes that are no ranks may set the key: which of them, nothing tells."""
    assert verdict(job(beside(0), beside(1), reader=reading(0, 500, 501))).culprit_ranks == ()


def test_a_connected_rank_is_named() -> None:
    """Of a store that the ranks share, the rank that is elsewhere is named, as before."""
    other = rank(1, (operation(1, PAIR, 1),), collective_frames("load")[1:], channel="pipe_read")
    found = diagnose(world(reading(0, 1001), other)).verdict
    assert found.culprit_ranks == (1,)


def test_the_process_that_has_failed_is_named() -> None:
    """Nobody is connected any more; a process beside the job has failed. It may be started anew, so it takes the patience."""
    found = verdict(job(beside(0, gone=True), reader=reading(0)))
    assert (found.kind, found.proven, found.culprit_ranks) == ("rank_lost", False, (BESIDE[0],))
    assert found.cause is not None
    assert found.cause.id == "peer-world-lost"
    assert "MemoryError" in found.cause.explanation


def test_nobody_is_blamed_for_its_end_while_others_may_set_the_key() -> None:
    """Connections of processes that are not seen: one of these may set it."""
    assert verdict(job(beside(0, gone=True), reader=reading(0, unseen=1))).culprit_ranks == ()


def test_what_others_wait_for_is_their_matter() -> None:
    """A process beside the job that awaits a key is no hang of the job's, as long as no rank waits for it."""
    engine = msgspec.structs.replace(
        reading(0), identity=RankIdentity(BESIDE[0], 1000, 1.0, "node-0", world="engine[1000]")
    )
    two = [rank(n, (operation(1, PAIR, 1),), collective_frames("load")[1:], busy=True) for n in (0, 1)]
    capture = world(*two, msgspec.structs.replace(engine, progress=None, flight=None))
    assert verdict(capture).kind == "healthy"
