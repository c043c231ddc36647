"""Whether a rank moves, and since when it has not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from hangwatch.analysis.motion.loops import mark_known
from hangwatch.analysis.motion.samples import read_motion, still_since_ns
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.processes import ChildProcess
from hangwatch.model.stacks import Block, Fact, Frame, Iterations, Position, StackSample, ThreadStack
from recorded import load
from worlds import NOW_NS, SECOND_NS, collective_frames, operation, rank, world


def test_a_thread_that_is_ready_to_run_is_not_stuck_though_it_gets_no_processor() -> None:
    """On an overloaded machine a rank at work may use less CPU time than one that waits usually does."""
    capture = rank(0, (), collective_frames("all_reduce"), state="R", channel="")
    assert read_motion(capture).state == "busy"
    once = tuple(msgspec.structs.replace(p, state="S" if i == 2 else "R") for i, p in enumerate(capture.processes))
    assert read_motion(msgspec.structs.replace(capture, processes=once)).state == "stuck"


@pytest.mark.parametrize(("states", "state"), [("RR", "busy"), ("SR", "stuck")])
def test_nor_is_one_whose_child_is_ready_to_run(states: str, state: str) -> None:
    """It waits for what that computes."""
    capture = rank(0, (), (Frame("_try_wait", "/usr/lib/python3.11/subprocess.py", 2004),), channel="do_wait")
    processes = tuple(
        msgspec.structs.replace(one, children=(ChildProcess(9, "sealer", of, 0.1),))
        for one, of in zip(capture.processes[-2:], states, strict=True)
    )
    assert read_motion(msgspec.structs.replace(capture, processes=processes)).state == state


@pytest.mark.parametrize(
    ("wakes", "path", "state"),
    [
        (40, "Clips.__getitem__ (train/clips.py:19): time.sleep(0.02)", "busy"),
        (1, "Clips.__getitem__ (train/clips.py:19): time.sleep(3600)", "stuck"),
        (40, None, "stuck"),
    ],
    ids=["in-the-data-set", "seldom", "beside-the-loader"],
)
def test_nor_is_one_whose_loader_wakes_in_the_data_set(wakes: int, path: str | None, state: str) -> None:
    """It may wait piece by piece for a slow item. A child that only keeps a connection open wakes as often."""
    fetch = "fetch (torch/utils/data/_utils/fetch.py:54): data = [self.dataset[i] for i in indices]"
    stack = (path, fetch) if path is not None else ("wait (threading.py:359): waiter.acquire(True, timeout)",)
    capture = rank(0, (), (Frame("_try_get_data", "/usr/lib/torch/utils/data/dataloader.py", 1200),), channel="do_poll")
    processes = tuple(
        msgspec.structs.replace(
            p, children=(ChildProcess(9, "pt_data_worker", "S", 0.1, stack=stack, switches=i * wakes),)
        )
        for i, p in enumerate(capture.processes)
    )
    assert read_motion(msgspec.structs.replace(capture, processes=processes)).state == state


def test_a_call_that_polls_has_stood_since_its_frames_have() -> None:
    """It sleeps and wakes all the time: that dates a loop of the program, and not one call of a library."""
    capture = rank(0, (), collective_frames("init_process_group"))
    waking = tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(capture.processes))
    capture = msgspec.structs.replace(capture, processes=waking)
    assert still_since_ns(capture) == NOW_NS
    assert still_since_ns(capture, polls=True) == NOW_NS - SECOND_NS


def test_the_sample_before_the_window_counts() -> None:
    """Samples are seconds apart: what moved between the last one before the window and its first has moved in the window."""
    capture = rank(0, (), collective_frames("all_reduce"))
    busy = (msgspec.structs.replace(capture.processes[0], cpu_s=0.0), *capture.processes[1:])
    capture = msgspec.structs.replace(capture, processes=busy)
    assert read_motion(capture, NOW_NS - SECOND_NS // 2 - 1).state == "busy"
    assert read_motion(capture, NOW_NS - SECOND_NS // 2).state == "stuck"


def test_what_a_rank_did_before_its_wait_is_no_motion_in_it() -> None:
    """However far the window reaches back: a job that loaded for minutes before it hung is not busy for the next ones."""
    capture = rank(0, (), collective_frames("all_reduce"))
    first, last = capture.processes[0].at_ns, capture.processes[-1].at_ns
    busy = (msgspec.structs.replace(capture.processes[0], cpu_s=0.0), *capture.processes[1:])
    capture = msgspec.structs.replace(capture, processes=busy)
    assert read_motion(capture).state == "busy"
    assert read_motion(capture, began_ns=first - 1).state == "busy"
    assert read_motion(capture, began_ns=first).state == "stuck"
    both = tuple(msgspec.structs.replace(p, cpu_s=float(i)) for i, p in enumerate(busy))
    assert read_motion(msgspec.structs.replace(capture, processes=both), began_ns=last).state == "busy"


def test_what_a_rank_did_before_others_waited_for_it_is_no_motion_of_it() -> None:
    """It has read from a pipe since; beside a busy machine the sample before is of its last step, and within the window."""
    group = Group("0", (0, 1), "default_pg")
    read = (Frame("read_licence", "/srv/train/train.py", 9, source="file.read(1)"),)
    silent = rank(0, (operation(1, group, 1),), read, channel="anon_pipe_read")
    step = msgspec.structs.replace(
        silent.processes[0], at_ns=NOW_NS - 9 * SECOND_NS, switches=1, wait_channel="hrtimer_nanosleep"
    )
    since = tuple(msgspec.structs.replace(one, switches=100) for one in silent.processes[1:])
    silent = msgspec.structs.replace(silent, processes=(step, *since))
    done, waits = operation(1, group, 1), operation(2, group, 2, done=False)
    for waited_s, kind in ((8, "stall"), (10, "straggler")):
        waits = msgspec.structs.replace(waits, created_ns=NOW_NS - waited_s * SECOND_NS)
        found = diagnose(
            world(silent, rank(1, (done, waits), collective_frames("all_reduce"))), patience=fixed_patience(6.0)
        )
        assert (found.verdict.kind, found.verdict.culprit_ranks) == (kind, (0,))


def test_a_proof_does_not_wait_for_what_came_before() -> None:
    """A rank that was seen at work before it came to its wait is proven to hang as soon as it is seen in it."""
    capture = load("group_order")

    def earlier(taken: RankCapture) -> RankCapture:
        process = msgspec.structs.replace(
            taken.processes[0], at_ns=taken.processes[0].at_ns - 600 * SECOND_NS, cpu_s=0.0
        )
        loading = ThreadStack(process.pid, "MainThread", True, True, False, collective_frames("load", 5))
        stack = StackSample(process.at_ns, (loading,))
        return msgspec.structs.replace(taken, processes=(process, *taken.processes), stacks=(stack, *taken.stacks))

    capture = msgspec.structs.replace(capture, ranks=tuple(earlier(one) for one in capture.ranks))
    assert diagnose(capture, patience=fixed_patience(3600.0)).verdict.proven


def test_who_will_try_again_is_not_stuck() -> None:
    """It sleeps in a handler, inside a loop, and wakes: each round is an attempt. One that never wakes has given up moving.

    One that looks whether a lock file has been removed attempts nothing.
    """
    sleep = Frame(
        "fetch", "/srv/train/data.py", 20, "time.sleep(wait)",
        blocks=(Block("while", 15, "while True:"), Block("try", 16, "try:"), Block("except", 18, "except OSError:")),
    )  # fmt: skip
    capture = rank(0, (), (sleep, Frame("<module>", "/srv/train/train.py", 90)))
    waking = tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(capture.processes))
    assert read_motion(msgspec.structs.replace(capture, processes=waking)).state == "busy"
    assert read_motion(capture).state == "stuck"
    locked = (*sleep.blocks[:2], Block("except", 18, "except FileExistsError:"))
    polling = rank(0, (), (msgspec.structs.replace(sleep, blocks=locked), Frame("<module>", "/srv/train/train.py", 90)))
    assert read_motion(msgspec.structs.replace(polling, processes=waking)).state == "stuck"
    once = msgspec.structs.replace(sleep, blocks=sleep.blocks[1:])
    ended = rank(0, (), (once, Frame("<module>", "/srv/train/train.py", 90)))
    assert read_motion(msgspec.structs.replace(ended, processes=waking)).state == "stuck"


@pytest.mark.parametrize(
    ("blocks", "state"),
    [
        (
            (
                Block("while", 15, "while not path.exists():"),
                Block("guard", 16, "if time.monotonic() > deadline: raise"),
            ),
            "busy",
        ),
        ((Block("while", 15, "while time.time() - began < limit:"),), "busy"),
        ((Block("while", 15, "while not path.exists():"),), "stuck"),
        (
            (
                Block("guard", 12, "if time.monotonic() > deadline: raise"),
                Block("while", 15, "while not path.exists():"),
            ),
            "stuck",
        ),
    ],
    ids=["deadline", "limit", "none", "before-the-loop"],
)
def test_a_poll_that_gives_up_at_a_time_of_its_own_is_late(blocks: tuple[Block, ...], state: str) -> None:
    """It ends whatever it waits for; one that has no such end may poll for good."""
    sleep = Frame("await_labels", "/srv/train/data.py", 20, "time.sleep(0.5)", blocks=blocks)
    capture = rank(0, (), (sleep, Frame("<module>", "/srv/train/train.py", 90)))
    waking = tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(capture.processes))
    assert read_motion(msgspec.structs.replace(capture, processes=waking)).state == state


def _met_at(*paths: tuple[Frame, ...]) -> RankCapture:
    """A rank that is found on these paths, one after the other."""
    captured = rank(0, (), paths[0])
    stacks = tuple(
        StackSample(process.at_ns, (ThreadStack(process.pid, "MainThread", True, False, False, path),))
        for process, path in zip(captured.processes[-len(paths) :], paths, strict=True)
    )
    return msgspec.structs.replace(captured, stacks=stacks)


@pytest.mark.parametrize(
    ("elsewhere", "state"),
    [
        ((Frame("exists", "<frozen genericpath>", 19), Frame("wait", "/srv/train/lock.py", 15)), "stuck"),
        (
            (
                Frame(
                    "wait", "/srv/train/lock.py", 22, blocks=(Block("while", 15, "while os.path.exists(self.path):"),)
                ),
            ),
            "stuck",
        ),
        ((Frame("ask", "/srv/train/client.py", 5), Frame("wait", "/srv/train/lock.py", 15)), "busy"),
        ((Frame("wait", "/srv/train/lock.py", 30),), "busy"),
    ],
    ids=["header", "another-line", "a-call", "past-the-loop"],
)
def test_another_line_of_the_same_poll_is_no_motion(elsewhere: tuple[Frame, ...], state: str) -> None:
    """It asks the same again, wherever in the loop it is met; what it calls may be work."""
    block = Block("while", 15, "while os.path.exists(self.path):")
    sleep = Frame("wait", "/srv/train/lock.py", 16, "time.sleep(0.1)", blocks=(block,))
    main = Frame("<module>", "/srv/train/train.py", 90)
    assert read_motion(_met_at((sleep, main), (*elsewhere, main))).state == state


def test_another_line_of_a_loop_over_data_is_motion() -> None:
    """A copy at a pace: it writes a piece of the file and sleeps, until there is no more."""
    block = Block("while", 29, "while chunk := file.read(CHUNK):", exhausts=True)
    sleep = Frame("write_data", "/srv/train/archive.py", 33, "time.sleep(len(chunk) / pace)", blocks=(block,))
    syncs = Frame("write_data", "/srv/train/archive.py", 32, "os.fsync(copy.fileno())", blocks=(block,))
    assert read_motion(_met_at((sleep,), (syncs,))).state == "busy"


def test_a_sleep_in_torch_is_none_between_items() -> None:
    """What is around it there was not read: ``FileBaton.wait`` polls for a lock file, called from a loop over steps."""
    steps = (Block("for", 80, "for step in range(2000):", exhausts=True),)
    main = Frame("main", "/srv/train/train.py", 90, "library.load()", blocks=steps)
    for file, state in (
        ("/opt/venv/lib/python3.11/site-packages/torch/utils/file_baton.py", "stuck"),
        ("/srv/train/a.py", "busy"),
    ):
        capture = rank(0, (), (Frame("wait", file, 50, "time.sleep(self.wait_seconds)"), main))
        waking = tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(capture.processes))
        assert read_motion(msgspec.structs.replace(capture, processes=waking)).state == state


@pytest.mark.parametrize(
    ("caller", "state"),
    [
        (Frame("BaseProxy._callmethod", "/usr/lib/python3.11/multiprocessing/managers.py", 822), "stuck"),
        (Frame("read_all", "/srv/train/feed.py", 30), "busy"),
    ],
)
def test_the_answers_of_a_manager_are_no_data(caller: Frame, state: str) -> None:
    """A queue of a manager is polled by calls that say "empty" each time, while its workers make nothing."""
    receives = Frame("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 395)
    capture = rank(0, (), (receives, caller), channel="unix_stream_read_generic")
    waking = tuple(msgspec.structs.replace(p, switches=20 * i) for i, p in enumerate(capture.processes))
    assert read_motion(msgspec.structs.replace(capture, processes=waking)).state == state


def _looping(text: str, iterations: Iterations, numbers: tuple[int, int]) -> RankCapture:
    """A rank that sleeps in a loop, seen in two iterations."""
    captured = rank(0, (), ())

    def stack(number: int, at_ns: int) -> StackSample:
        block = Block(text.partition(" ")[0], 15, text, iterations)
        frame = Frame(
            "put", "/srv/train/data.py", 20, "time.sleep(wait)", locals={"i": f"int={number}"}, blocks=(block,)
        )
        return StackSample(at_ns, (ThreadStack(captured.identity.pid, "MainThread", True, False, False, (frame,)),))

    stacks = tuple(stack(n, p.at_ns) for n, p in zip(numbers, captured.processes[-2:], strict=True))
    return msgspec.structs.replace(captured, stacks=stacks)


def test_who_is_in_a_later_iteration_has_got_on() -> None:
    """Where the number of iterations alone ends the loop. One that something else may end polls, however it is counted."""
    paced = Iterations("i", 15, breaks=False, bounded=True)
    assert read_motion(_looping("for i in range(n):", paced, (3, 4))).state == "busy"
    assert read_motion(_looping("for i in range(n):", paced, (4, 4))).state == "stuck"
    polling = Iterations("i", 15, breaks=True)
    assert read_motion(_looping("for i in range(n):", polling, (3, 4))).state == "stuck"
    counted = Iterations("i", 16, breaks=False)
    assert read_motion(_looping("while not ready():", counted, (3, 4))).state == "stuck"


def _through_data(
    digests: tuple[str, ...], *blocks: Block, outer: tuple[Block, ...] = (), source: str = "ask(item)"
) -> RankCapture:
    """A rank in a loop at line 15, and at these items one after another, a second apart."""
    captured = rank(0, (), ())
    first = captured.processes[0]
    caller = Frame("main", "/srv/train/train.py", 90, "crawl()", blocks=outer)

    def stack(number: int, digest: str) -> StackSample:
        frame = Frame(
            "crawl", "/srv/train/data.py", 20, source, blocks=blocks, positions=(Position("item", 15, digest),)
        )
        thread = ThreadStack(captured.identity.pid, "MainThread", True, False, False, (frame, caller))
        return StackSample(first.at_ns + number * SECOND_NS, (thread,))

    processes = tuple(
        msgspec.structs.replace(first, at_ns=first.at_ns + n * SECOND_NS, switches=n) for n in range(len(digests))
    )
    stacks: list[StackSample] = []
    for number, digest in enumerate(digests):
        stacks.append(mark_known(stack(number, digest), stacks))
    return msgspec.structs.replace(captured, processes=processes, stacks=tuple(stacks))


_DATA = Block("for", 15, "for item in items:", exhausts=True)
_QUEUE = Block("while", 15, "while pending:")
_EMPTIED = Block("while", 15, "while pending:", exhausts=True)


def test_who_is_at_another_item_has_got_on() -> None:
    """In a loop that ends with its data at any other item; in one that may go round, at one that is new."""
    assert read_motion(_through_data(("a", "b", "a"), _DATA)).state == "busy"
    assert read_motion(_through_data(("a", "a", "a"), _DATA)).state == "stuck"
    assert read_motion(_through_data(("a", "b", "c"), _QUEUE)).state == "busy"
    assert read_motion(_through_data(("a", "b", "a"), _EMPTIED)).state == "busy"
    in_turn = _through_data(("a", "b", "c", "a", "b", "c", "a"), _QUEUE)
    assert read_motion(in_turn, in_turn.stacks[-3].at_ns).state == "stuck"
    # A bundle keeps the last samples only, and they know what was before them.
    assert read_motion(msgspec.structs.replace(in_turn, stacks=in_turn.stacks[-3:])).state == "stuck"
    again = _through_data(("a", "b", "a", "b", "a"), Block("while", 14, "while not done():"), _DATA)
    assert read_motion(again, again.stacks[-2].at_ns).state == "stuck"
    called = _through_data(("a", "b", "a", "b", "a"), _DATA, outer=(Block("while", 80, "while not done():"),))
    assert read_motion(called, called.stacks[-2].at_ns).state == "stuck"


def test_who_sleeps_in_a_loop_that_ends_with_its_data_is_at_the_next_item_when_it_wakes() -> None:
    """That needs no variables; but a loop around it may begin anew, and what does not wake does not get on."""
    sleep = "time.sleep(1.1)"
    same = ("a", "a", "a")
    assert read_motion(_through_data(same, _DATA, source=sleep)).state == "busy"
    assert read_motion(_through_data(same, _EMPTIED, source=sleep)).state == "busy"
    assert read_motion(_through_data(same, _QUEUE, source=sleep)).state == "stuck"
    assert read_motion(_through_data(same, _DATA, Block("while", 17, "while not ok:"), source=sleep)).state == "stuck"
    around = (Block("while", 80, "while not done():"),)
    assert read_motion(_through_data(same, _DATA, outer=around, source=sleep)).state == "stuck"
    captured = _through_data(same, _DATA, source=sleep)
    asleep = tuple(msgspec.structs.replace(p, switches=1) for p in captured.processes)
    assert read_motion(msgspec.structs.replace(captured, processes=asleep)).state == "stuck"


def test_a_thread_that_the_main_one_waits_for_moves_for_it() -> None:
    """A pool's at work; one beside a main thread that is elsewhere does not."""

    def beside(captured: RankCapture, file: str) -> RankCapture:
        waiting = ThreadStack(captured.identity.pid, "MainThread", True, False, False, (Frame("wait", file, 327),))
        side = [msgspec.structs.replace(s.threads[0], is_main=False, ident=7) for s in captured.stacks]
        stacks = tuple(StackSample(s.at_ns, (waiting, one)) for s, one in zip(captured.stacks, side, strict=True))
        return msgspec.structs.replace(captured, stacks=stacks)

    moving = _through_data(("a", "b", "c"), _DATA)
    assert read_motion(beside(moving, "/usr/lib/python3.11/threading.py")).state == "busy"
    assert read_motion(beside(moving, "/srv/train/lock.py")).state == "stuck"


def test_who_waits_for_a_child_moves_with_it() -> None:
    """With how far the child is in its own data."""
    captured = rank(0, (), ())

    def child(digest: str) -> ChildProcess:
        return ChildProcess(9, "crawler", "S", 0.1, positions=(Position("url", 3, digest),))

    def seen(*digests: str) -> RankCapture:
        pairs = zip(captured.processes[-2:], digests, strict=True)
        return msgspec.structs.replace(
            captured, processes=tuple(msgspec.structs.replace(p, children=(child(d),)) for p, d in pairs)
        )

    assert read_motion(seen("a", "b")).state == "busy"
    assert read_motion(seen("a", "a")).state == "stuck"


@pytest.mark.parametrize(
    ("between", "left_s", "state"),
    [
        ((True, True), (0.3, 0.4), "busy"),
        ((True, False), (0.3, 0.4), "busy"),  # its stack was read when it had woken
        ((True, True), (0.8, 0.3), "stuck"),
        ((False, False), (0.3, 0.4), "stuck"),
        ((True, True), (None, 0.4), "stuck"),
    ],
)
def test_a_child_that_woke_between_two_items_moves(
    between: tuple[bool, bool], left_s: tuple[float | None, float], state: str
) -> None:
    """Its sleep ends at another time than before, and behind it is the next item, though none of its variables can be read."""
    capture = rank(0, (), (Frame("main", "/srv/train/train.py", 20, "lexicon = load()"),))
    processes = tuple(
        msgspec.structs.replace(
            one, children=(ChildProcess(9, "fetcher", "S", 0.1, sleep_left_s=left, between_items=item),)
        )
        for one, left, item in zip(capture.processes[-2:], left_s, between, strict=True)
    )
    assert read_motion(msgspec.structs.replace(capture, processes=processes)).state == state


@pytest.mark.parametrize(
    ("channel", "switches", "io_bytes", "state"),
    [
        ("unix_stream_read_generic", 4, 0, "busy"),
        ("unix_stream_read_generic", 1, 0, "stuck"),  # it may be asked how far it is
        ("futex_do_wait", 4, 0, "stuck"),
        ("poll_schedule_timeout", 0, 50_000, "busy"),
        ("poll_schedule_timeout", 0, 10_000, "stuck"),
        ("poll_schedule_timeout", 0, None, "stuck"),
    ],
)
def test_a_child_that_receives_or_writes_moves(channel: str, switches: int, io_bytes: int | None, state: str) -> None:
    """A download by a tool takes little CPU time; the samples are half a second apart."""
    capture = rank(0, (), (Frame("main", "/srv/train/train.py", 20, "time.sleep(2)"),))
    first, last = (
        ChildProcess(
            9, "curl", "S", 0.1, channel, switches=7 + n * switches, io_bytes=None if io_bytes is None else n * io_bytes
        )
        for n in (0, 1)
    )
    processes = tuple(
        msgspec.structs.replace(p, io_bytes=0, children=(child,))
        for p, child in zip(capture.processes[-2:], (first, last), strict=True)
    )
    seen = msgspec.structs.replace(capture, processes=processes)
    assert read_motion(seen).state == state
    assert read_motion(seen, waits=True).state == "stuck"  # those of a rank that waits for others go on beside that


@pytest.mark.parametrize(
    ("ends", "switches", "state"), [(True, (41, 43), "busy"), (True, (41, 41), "stuck"), (False, (41, 43), "stuck")]
)
def test_an_event_loop_that_wakes_moves(ends: bool, switches: tuple[int, int], state: str) -> None:
    """If all that it runs ends with its data; one that polls wakes as well, and gets nowhere."""
    waits = Frame("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884)
    facts = (Fact("ends", "asyncio.run(ask())"),) if ends else ()
    own = Frame("main", "/srv/train/train.py", 20, "asyncio.run(ask())", facts=facts)
    capture = rank(0, (), (Frame("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468), waits, own))
    processes = tuple(
        msgspec.structs.replace(one, switches=number)
        for one, number in zip(capture.processes[-2:], switches, strict=True)
    )
    assert read_motion(msgspec.structs.replace(capture, processes=processes)).state == state


@pytest.mark.parametrize(("handler", "state"), [("BaseServer.finish_request", "busy"), ("Thread.run", "stuck")])
def test_who_awaits_its_own_server_moves_with_it(handler: str, state: str) -> None:
    """The handler is in another thread of the process, and gets on; what another thread does is none of its business."""
    reads = Frame("SocketIO.readinto", "/usr/lib/python3.11/socket.py", 706)
    block = Block("for", 19, "for answer in answers:", exhausts=True)
    answers = Frame(handler, "/usr/lib/python3.11/socketserver.py", 361)

    def seen(at_ns: int, digest: str) -> StackSample:
        position = (Position("answer", 19, digest),)
        works = Frame("do_POST", "/srv/train/judge.py", 20, "marks.append(2)", blocks=(block,), positions=position)
        own = ThreadStack(1, "MainThread", True, False, False, (reads, Frame("ask", "/srv/train/train.py", 20)))
        return StackSample(at_ns, (own, ThreadStack(2, "Thread-7", False, False, False, (works, answers))))

    capture = rank(0, (), (reads,))
    stacks = tuple(seen(one.at_ns, digest) for one, digest in zip(capture.processes[-2:], "ab", strict=True))
    assert read_motion(msgspec.structs.replace(capture, stacks=stacks)).state == state


def test_who_reads_a_pipe_has_got_something_when_it_wakes() -> None:
    """A line each second is enough; but a loop that asks again and again may get the same answer for ever."""

    def reading(*blocks: Block, channel: str = "anon_pipe_read") -> RankCapture:
        captured = _through_data(("a", "a", "a"), *blocks, source="answer = service.stdout.readline()")
        processes = tuple(msgspec.structs.replace(p, wait_channel=channel) for p in captured.processes)
        return msgspec.structs.replace(captured, processes=processes)

    assert read_motion(reading()).state == "busy"
    assert read_motion(reading(Block("for", 15, "for line in service.stdout:"))).state == "busy"
    assert read_motion(reading(Block("while", 15, "while ask() != 'ready':"))).state == "stuck"
    in_condition = _through_data(("a", "a", "a"), source="while ask() != 'ready':")
    processes = tuple(msgspec.structs.replace(p, wait_channel="pipe_read") for p in in_condition.processes)
    assert read_motion(msgspec.structs.replace(in_condition, processes=processes)).state == "stuck"
    assert read_motion(reading(channel="do_poll")).state == "stuck"


def _receiving(deepest: Sequence[Frame], *around: Block) -> RankCapture:
    """A rank that wakes once between two samples, in a poll below its own line."""

    def polling(sample: StackSample) -> StackSample:
        (thread,) = sample.threads
        return StackSample(sample.at_ns, (msgspec.structs.replace(thread, frames=(*deepest, *thread.frames)),))

    captured = _through_data(("a", "a", "a"), *around)
    return msgspec.structs.replace(captured, stacks=tuple(map(polling, captured.stacks)))


_LIBRARY = "/usr/lib/python3.11"
#: ``subprocess.run`` polls its pipes, and what http.client reads the socket, for all of the time limit if there is one.
_OF_A_CHILD = (
    Frame("select", f"{_LIBRARY}/selectors.py", 415),
    Frame("_communicate", f"{_LIBRARY}/subprocess.py", 2108),
)
_OF_A_SOCKET = (
    Frame("SocketIO.readinto", f"{_LIBRARY}/socket.py", 706),
    Frame("read", f"{_LIBRARY}/http/client.py", 473),
)
_OF_TLS = (
    Frame("SSLSocket.read", f"{_LIBRARY}/ssl.py", 1166),
    Frame("SSLSocket.recv_into", f"{_LIBRARY}/ssl.py", 1311),
    *_OF_A_SOCKET,
)


@pytest.mark.parametrize("deepest", [_OF_A_CHILD, _OF_A_SOCKET, _OF_TLS], ids=["child", "socket", "tls"])
def test_who_awaits_all_that_comes_has_got_some_when_it_wakes(deepest: tuple[Frame, ...]) -> None:
    """In a loop it may ask again and again."""
    assert read_motion(_receiving(deepest)).state == "busy"
    assert read_motion(_receiving(deepest, Block("while", 14, "while not is_there():"))).state == "stuck"


def test_a_loop_that_reads_to_the_end_asks_for_nothing() -> None:
    """Its condition is what comes."""

    def reading(source: str) -> str:
        return read_motion(_receiving((*_OF_A_SOCKET, Frame("fetch", "/srv/train/tiles.py", 36, source=source)))).state

    assert reading("while piece := response.read(4096):") == "busy"
    assert reading("while not response.read(1):") == "stuck"
    assert reading('while (state := service.read_state()) != "ready":') == "stuck"


def test_a_handler_that_a_timer_calls_within_itself_stands_still() -> None:
    """It awaits a lock, and with each signal there is one more of its frames."""
    handler = Frame("_on_timer", "/srv/train/train.py", 44, source="with self.lock:")
    below = (Frame("merge", "/srv/train/train.py", 34), Frame("main", "/srv/train/train.py", 82))
    capture = rank(0, (), (handler, *below))
    deeper = tuple(
        msgspec.structs.replace(
            stack, threads=tuple(msgspec.structs.replace(t, frames=(*(handler,) * n, *below)) for t in stack.threads)
        )
        for n, stack in enumerate(capture.stacks, 1)
    )
    assert len({len(s.threads[0].frames) for s in deeper}) > 1
    assert read_motion(msgspec.structs.replace(capture, stacks=deeper)).state == "stuck"


@pytest.mark.parametrize(
    ("calls", "around", "state"),
    [
        (("a", "b"), (), "busy"),
        (("a", "a"), (), "stuck"),
        (("a", "b"), (Block("while", 40, "while not pool.submit(ready).result():"),), "stuck"),
    ],
    ids=["other-calls", "one-call", "asks-again"],
)
def test_a_pool_whose_threads_are_given_other_calls_gets_on(
    calls: tuple[str, str], around: tuple[Block, ...], state: str
) -> None:
    """The main thread waits for the pool; one that hands it call after call may ask the same each time."""
    captured = rank(0, (), ())
    first = captured.processes[0]
    waits = (
        Frame("result", "/usr/lib/python3.11/concurrent/futures/_base.py", 451),
        Frame("score", "/srv/train/train.py", 41, "done.result()", blocks=around),
    )

    def stack(number: int, call: str) -> StackSample:
        worker = (
            Frame("read", "/srv/train/data.py", 21, "time.sleep(1)"),
            Frame(
                "_worker",
                "/usr/lib/python3.11/concurrent/futures/thread.py",
                83,
                positions=(Position("work_item", 0, call),),
            ),
        )
        threads = (
            ThreadStack(1000, "MainThread", True, False, False, waits),
            ThreadStack(77, "pictures_0", False, False, False, worker, ident=77),
        )
        return StackSample(first.at_ns + number * SECOND_NS, threads)

    processes = tuple(msgspec.structs.replace(first, at_ns=first.at_ns + n * SECOND_NS) for n in range(2))
    stacks = tuple(stack(n, call) for n, call in enumerate(calls))
    assert read_motion(msgspec.structs.replace(captured, processes=processes, stacks=stacks)).state == state
