"""What a hang is called after so long, by what its culprit has done meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.processes import ChildProcess, ProcessSample, ThreadSample
from hangwatch.model.stacks import Block, Frame, StackSample, ThreadStack
from worlds import NOW_NS, SECOND_NS, collective_frames, operation, rank, world

PACKING = (Frame("push", "/srv/train/push.py", 40, "time.sleep(4)"), Frame("<module>", "/srv/train/push.py", 90))


@pytest.mark.parametrize(("called_s", "kind"), [(3, "straggler"), (9, "stall")])
def test_who_has_called_a_collective_lately_is_late_and_not_stuck(called_s: int, kind: str) -> None:
    """Its peer awaits its next step, while it hands something on to others in a group of theirs, with pauses."""
    ours, theirs = Group("0", (0, 1), "default_pg"), Group("1", (0, 2), "push")
    handed = msgspec.structs.replace(operation(2, theirs, 1), created_ns=NOW_NS - called_s * SECOND_NS)
    ranks = (
        rank(0, (operation(1, ours, 1), handed), PACKING, channel="hrtimer_nanosleep"),
        rank(1, (operation(1, ours, 1), operation(2, ours, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0))
    assert found.verdict.culprit_ranks == (0,)
    assert found.verdict.kind == kind


def asleep(left_s: float | None, slept_s: int, *, child: bool = False) -> tuple[ProcessSample, ...]:
    """Samples of ten seconds, a second apart: the process or its child has slept for ``slept_s``, in another one before."""
    samples = []
    for ago in range(10, -1, -1):
        left = None if left_s is None else left_s + ago if ago <= slept_s else ago - slept_s
        woken = 7 if ago <= slept_s else 6
        one = ProcessSample(NOW_NS - ago * SECOND_NS, 1000, "S", 1.0, switches=woken, syscall="clock_nanosleep")
        if child:
            worker = ChildProcess(1001, "pt_data_worker", "S", 0.5, sleep_left_s=left)
            samples.append(msgspec.structs.replace(one, syscall="poll", children=(worker,)))
        else:
            samples.append(msgspec.structs.replace(one, sleep_left_s=left))
    return tuple(samples)


@pytest.mark.parametrize("child", [False, True], ids=["itself", "its-child"])
@pytest.mark.parametrize(
    ("left_s", "slept_s", "kind"),
    [(4.0, 9, "straggler"), (7.0, 9, "stall"), (4.0, 3, "stall"), (None, 9, "stall")],
    ids=["wakes-within-the-patience", "wakes-later", "one-sleep-of-several", "not-known"],
)
def test_who_wakes_soon_is_late_and_not_stuck(left_s: float | None, slept_s: int, kind: str, *, child: bool) -> None:
    """It has slept for most of the wait, and named a time to end it: a poll has slept for less, and comes to nothing."""
    group = Group("0", (0, 1), "default_pg")
    late = rank(0, (operation(1, group, 1),), PACKING, channel="hrtimer_nanosleep")
    ranks = (
        msgspec.structs.replace(late, processes=asleep(left_s, slept_s, child=child)),
        rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (kind, (0,))
    assert found.cause is not None
    says = [e.says for e in found.cause.evidence if "the current wait ends" in e.says]
    assert says == ([f"the current wait ends within {left_s:.0f} s"] if left_s is not None and not child else [])


@pytest.mark.parametrize("child", [False, True], ids=["itself", "its-child"])
@pytest.mark.parametrize(("all_s", "kind"), [(13.0, "straggler"), (60.0, "stall"), (None, "stall")])
def test_who_waits_with_a_time_out_is_late_until_it_ends(all_s: float | None, kind: str, *, child: bool) -> None:
    """``poll`` and sleep(1) say how long they wait in all; that it is since a sample, the thread's context switches tell."""
    group = Group("0", (0, 1), "default_pg")
    late = rank(0, (operation(1, group, 1),), PACKING, channel="poll_schedule_timeout")
    sleeps = (ChildProcess(1001, "sleep", "S", 0.0, switches=2, sleep_left_s=all_s),)
    waits = {"syscall": "wait4", "children": sleeps} if child else {"syscall": "poll", "sleep_left_s": all_s}
    samples = tuple(msgspec.structs.replace(p, **waits) for p in asleep(None, 9))
    ranks = (
        msgspec.structs.replace(late, processes=samples),
        rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (kind, (0,))


@pytest.mark.parametrize("stopped", [{"state": "T"}, {"frozen": True}], ids=["by-a-signal", "its-cgroup"])
def test_who_is_stopped_does_not_wake_when_its_sleep_ends(stopped: dict[str, object]) -> None:
    """A server that is stopped in the ``poll`` of half a second between two requests."""
    group = Group("0", (0, 1), "default_pg")
    late = rank(0, (operation(1, group, 1),), PACKING, channel="do_signal_stop")
    samples = tuple(msgspec.structs.replace(p, sleep_left_s=0.5, **stopped) for p in asleep(None, 9))
    ranks = (
        msgspec.structs.replace(late, processes=samples),
        rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == ("stall", (0,))
    assert found.cause is not None
    assert found.cause.id == "rank-stopped"
    assert not [e.says for e in found.cause.evidence if "the current wait ends" in e.says]


JOINS = (
    Frame("join", "/usr/lib/python3.11/threading.py", 1119, "self._wait_for_tstate_lock()"),
    Frame("close", "/srv/train/push.py", 52, "self.thread.join()"),
)


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ((Block("while", 30, "while (name := self.files.get()) is not None:", exhausts=True),), "straggler"),
        ((Block("while", 30, "while not self.ready:"),), "stall"),
        ((Block("while", 30, "while True:"), Block("except", 34, "except Busy as error:")), "straggler"),
    ],
    ids=["items", "poll", "attempts"],
)
def test_a_thread_that_is_waited_for_may_sleep_between_its_items(blocks: tuple[Block, ...], kind: str) -> None:
    """Or between attempts. Each sleep is shorter than the wait, and behind it comes the next one."""
    group = Group("0", (0, 1), "default_pg")
    uploads = Frame("run", "/srv/train/push.py", 31, "time.sleep(self.seconds)", blocks=blocks)
    late = rank(0, (operation(1, group, 1),), JOINS)
    other = ThreadStack(77, "uploader", False, False, False, (uploads,), ident=77)
    stacks = tuple(msgspec.structs.replace(s, threads=(*s.threads, other)) for s in late.stacks)
    samples = tuple(
        msgspec.structs.replace(p, threads=(ThreadSample(77, "S", switches=5, sleep_left_s=5.0 - n),))
        for n, p in enumerate(late.processes)
    )
    ranks = (
        msgspec.structs.replace(late, processes=samples, stacks=stacks),
        rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (kind, (0,))


@pytest.mark.parametrize(
    ("left_s", "around", "kind"),
    [(4.0, False, "straggler"), (9.0, False, "stall"), (0.3, True, "straggler"), (None, True, "stall")],
    ids=["ends-within-the-patience", "ends-later", "each-item-ends-soon", "polls"],
)
def test_a_loop_that_ends_at_a_time_is_waited_for(left_s: float | None, around: bool, kind: str) -> None:
    """Of one that is begun for each item, the next begins then. A loop whose end is not known may be a poll."""
    group = Group("0", (0, 1), "default_pg")
    loops = (Block("for", 20, "for shard in shards:", exhausts=True),) if around else ()
    loops += (Block("while", 22, "while time.monotonic() < until:"),)
    work = Frame("work", "/srv/train/push.py", 24, "time.sleep(0.01)", blocks=loops)
    late = rank(0, (operation(1, group, 1),), (work,), channel="hrtimer_nanosleep")
    thread = late.stacks[0].threads[0]
    stacks = []
    for ago in (9, 6, 1, 0):
        before = left_s + ago if left_s is not None and not around else left_s
        frame = msgspec.structs.replace(work, ends_in_s=before)
        stacks.append(StackSample(NOW_NS - ago * SECOND_NS, (msgspec.structs.replace(thread, frames=(frame,)),)))
    ranks = (
        msgspec.structs.replace(late, stacks=tuple(stacks)),
        rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (kind, (0,))


def test_all_have_joined_and_one_has_called_something_just_now() -> None:
    """Its record is of before, its beat of after: what it called, the next record shows."""
    group = Group("0", (0, 1), "default_pg")
    waits = (operation(1, group, 1), operation(2, group, 2, done=False))
    late = rank(1, (operation(1, group, 1),), collective_frames("all_reduce"))
    called = msgspec.structs.replace(late, progress=(GroupProgress(group, 2, -1, 1),))
    ranks = (rank(0, waits, collective_frames("all_reduce")), called)
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) != ("stall", ())


@pytest.mark.parametrize(("left_s", "kind"), [(4.0, "straggler"), (7.0, "stall")])
def test_who_tries_again_soon_is_late_and_not_stuck(left_s: float, kind: str) -> None:
    """However short its sleep has been: it sleeps for longer after each refusal."""
    tries = msgspec.structs.replace(
        PACKING[0],
        blocks=(Block("for", 36, "for attempt in range(8):"), Block("except", 39, "except Busy as reason:")),
    )
    group = Group("0", (0, 1), "default_pg")
    late = rank(0, (operation(1, group, 1),), (tries, PACKING[1]), channel="hrtimer_nanosleep")
    ranks = (
        msgspec.structs.replace(late, processes=asleep(left_s, 3)),
        rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("all_reduce")),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (kind, (0,))


@pytest.mark.parametrize(
    ("syscall", "held", "computes", "switches", "kind"),
    [
        ("clock_nanosleep", "", True, 0, "straggler"),
        ("clock_nanosleep", "", False, 9, "stall"),
        ("futex", "", True, 9, "stall"),
        ("clock_nanosleep", "/srv/ledger.db held by 2000 python", False, 9, "straggler"),
        ("clock_nanosleep", "/srv/ledger.db held by 2000 python", False, 0, "stall"),
        ("clock_nanosleep", "/srv/ledger.db held by 2001 python", False, 9, "stall"),
    ],
    ids=[
        "works",
        "only-wakes",
        "is-not-looked-for",
        "has-the-lock",
        "has-the-lock-and-is-stuck",
        "another-has-the-lock",
    ],
)
def test_who_looks_for_what_the_child_of_another_rank_makes_is_late(
    syscall: str, held: str, *, computes: bool, switches: int, kind: str
) -> None:
    """It sleeps between two looks. The other rank waits for it meanwhile, and its child works, or has the lock and wakes."""
    group = Group("0", (0, 1), "default_pg")
    looks = rank(0, (operation(1, group, 1),), PACKING, channel="hrtimer_nanosleep")
    starts = rank(1, (operation(1, group, 1), operation(2, group, 2, done=False)), collective_frames("broadcast"))

    def child(at: int) -> ChildProcess:
        return ChildProcess(2000, "python", "S", 0.4 * at if computes else 0.0, switches=at * switches)

    ranks = (
        msgspec.structs.replace(
            looks,
            processes=tuple(
                msgspec.structs.replace(p, syscall=syscall, blocked_on=held or None) for p in looks.processes
            ),
        ),
        msgspec.structs.replace(
            starts,
            processes=tuple(msgspec.structs.replace(p, children=(child(n),)) for n, p in enumerate(starts.processes)),
        ),
    )
    found = diagnose(world(*ranks), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (kind, (0,))
