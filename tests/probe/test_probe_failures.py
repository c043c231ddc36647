"""Exceptions of a rank in its beat: the thread that died, the one being handled. And the program behaves as without us."""

from __future__ import annotations

import re

from probe_runs import Run

from support import LONG_S

#: One rank alone, as an environment of a launcher makes it one; ``pause`` waits for the test.
ALONE = """
import gc, os, sys, threading, weakref
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(1))

class Fault(Exception):
    def __str__(self):
        os._exit(9)  # whoever asks for our words has run our code

def fails(error):
    raise error

def pause():
    print("here", flush=True)
    sys.stdin.readline()

def run(error, name="upload"):
    thread = threading.Thread(target=fails, args=(error,), name=name)
    thread.start()
    thread.join()
"""


def test_exception_that_ended_a_thread_is_in_the_beat(run: Run) -> None:
    """Thread, words and place, of the last few; and stderr is what it is without the probe."""
    script = run.write(
        ALONE
        + """
for number in range(9):
    run(ValueError(number), "loader-%d" % number)
run(KeyError("label"))
pause()
dist.destroy_process_group()
"""
    )
    rank = run.start_rank(script)
    beat = run.wait_beat(rank.pid, lambda b: any("KeyError" in line for line in b.thread_failure))
    line = 1 + script.read_text().splitlines().index("    raise error")
    assert beat.thread_failure == (
        f"thread loader-7: ValueError: 7, in fails ({script}:{line})",
        f"thread loader-8: ValueError: 8, in fails ({script}:{line})",
        f"thread upload: KeyError: 'label', in fails ({script}:{line})",
    )
    assert (beat.failure, beat.problems) == ((), ())
    out, err = rank.communicate("\n", timeout=LONG_S)
    assert (out, rank.returncode) == ("here\n", 0)
    plain = run.start(script, env=run.environment(site=None, RANK="0", WORLD_SIZE="1"))
    assert plain.communicate("\n", timeout=LONG_S) == (out, err)


def test_users_own_hooks_work_before_and_after_ours(run: Run) -> None:
    """A hook set before torch is imported is still called, a later one takes our place, and may call what was there."""
    script = run.write(
        """
import threading
threading.excepthook = lambda args: print("first", args.exc_type.__name__, args.thread.name)
"""
        + ALONE
        + """
run(ValueError("one"))
before = threading.excepthook
threading.excepthook = lambda args: print("second", args.exc_type.__name__)
run(KeyError("two"))
threading.excepthook = lambda args: (print("third"), before(args))
run(Fault("three"))
run(SystemExit(3))
pause()
dist.destroy_process_group()
"""
    )
    rank = run.start_rank(script)
    beat = run.wait_beat(rank.pid, lambda b: len(b.thread_failure) == 2)
    assert [line.split(", in ")[0] for line in beat.thread_failure] == [
        "thread upload: ValueError: one",
        "thread upload: Fault",
    ]
    out, err = rank.communicate("\n", timeout=LONG_S)
    assert out.splitlines() == [
        "first ValueError upload",
        "second KeyError",
        "third",
        "first Fault upload",
        "third",
        "first SystemExit upload",
        "here",
    ]
    assert (err, rank.returncode) == ("", 0)


def test_nothing_of_an_exception_is_kept_alive(run: Run) -> None:
    """Neither that of a thread nor one that was handled outlives its own time by us."""
    script = run.write(
        """
import threading
threading.excepthook = lambda args: None
"""
        + ALONE
        + """
class Load:
    pass

def held():
    load = Load()
    seen.append(weakref.ref(load))
    raise Fault(load)

seen = []
thread = threading.Thread(target=held)
thread.start()
thread.join()
assert seen[0]() is None
try:
    held()
except Fault:
    pause()
assert seen[1]() is None
pause()
dist.destroy_process_group()
"""
    )
    rank = run.start_rank(script)
    beat = run.wait_beat(rank.pid, lambda b: b.handled != ())
    assert re.fullmatch(rf"held \({script}:\d+\)", beat.handled[0])
    assert beat.handled[1] == "Fault"
    assert rank.stdin is not None
    rank.stdin.write("\n")
    rank.stdin.flush()
    after = run.wait_beat(rank.pid, lambda b: b.handled == ())
    assert ": Fault, in held (" in after.thread_failure[-1]
    _, err = rank.communicate("\n", timeout=LONG_S)
    assert (err, rank.returncode) == ("", 0)


def test_what_other_threads_handle_is_in_the_beat_and_lives_no_longer(run: Run) -> None:
    """A line each, with the thread's name; none of a thread that has left its handler, or that is done by SystemExit."""
    script = run.write(
        ALONE
        + """
class Load:
    pass

def handling(name, until):
    try:
        if name == "sender":
            load = Load()
            seen.append(weakref.ref(load))
            raise Fault(load)
        fails(OSError(28, "full") if name == "saver" else SystemExit())
    except BaseException:
        until.wait()
    load = None
    left.set()
    done.wait()

seen, done, left, first = [], threading.Event(), threading.Event(), threading.Event()
for name in ("saver", "sender", "leaver"):
    threading.Thread(target=handling, args=(name, first if name == "saver" else done), name=name).start()
pause()
first.set()
left.wait()
pause()
done.set()
while seen[0]() is not None:
    left.wait(0.01)
dist.destroy_process_group()
"""
    )
    rank = run.start_rank(script)
    beat = run.wait_beat(rank.pid, lambda b: len(b.thread_handled) == 2)
    lines = script.read_text().splitlines()
    line, held = 1 + lines.index("    raise error"), 1 + lines.index("            raise Fault(load)")
    assert sorted(beat.thread_handled) == [
        f"thread saver: OSError: [Errno 28] full, in fails ({script}:{line})",
        f"thread sender: Fault, in handling ({script}:{held})",
    ]
    assert (beat.handled, beat.thread_failure) == ((), ())
    assert rank.stdin is not None
    rank.stdin.write("\n")
    rank.stdin.flush()
    after = run.wait_beat(rank.pid, lambda b: len(b.thread_handled) == 1)
    assert after.thread_handled[0].startswith("thread sender: Fault, in handling (")
    _, err = rank.communicate("\n", timeout=LONG_S)
    assert (err, rank.returncode) == ("", 0)


def test_handled_exception_is_reported_only_while_nothing_moves(run: Run) -> None:
    """A handler in which the rank trains on says nothing; leaving by `with` is handling, and SystemExit is no failure."""
    script = run.write(
        ALONE
        + """
import contextlib, time
@contextlib.contextmanager
def leaving():
    try:
        yield
    finally:
        pause()
try:
    fails(OSError(28, "full"))
except OSError:
    beat = "%s/ranks/%d.beat" % (os.environ["HANGWATCH_RUN_DIR"], os.getpid())
    seen = set()
    while len(seen) < 8:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)
        if os.path.exists(beat):
            text = open(beat, "rb").read()
            assert b'"handled":[]' in text
            seen.add(text)
try:
    with leaving():
        fails(RuntimeError("on its way"))
except RuntimeError:
    pass
try:
    sys.exit(3)
except SystemExit:
    pause()
try:
    try:
        fails(ValueError("the reason"))
    except ValueError:
        sys.exit(1)
except SystemExit:
    pause()
dist.destroy_process_group()
"""
    )
    rank = run.start_rank(script)
    beat = run.wait_beat(rank.pid, lambda b: b.handled != ())
    assert beat.handled[1] == "RuntimeError: on its way"
    assert rank.stdin is not None
    rank.stdin.write("\n")
    rank.stdin.flush()
    counter = run.wait_beat(rank.pid, lambda b: b.handled == ()).counter
    assert run.wait_beat(rank.pid, lambda b: b.counter > counter + 5).handled == ()
    rank.stdin.write("\n")
    rank.stdin.flush()
    assert run.wait_beat(rank.pid, lambda b: b.handled != ()).handled[1] == "ValueError: the reason"
    out, err = rank.communicate("\n", timeout=LONG_S)
    assert (out, err, rank.returncode) == ("here\nhere\nhere\n", "", 0)


def test_forked_child_that_becomes_a_rank_knows_nothing_of_the_parents_threads(run: Run) -> None:
    """The hook goes on in the child, what was noted does not."""
    script = run.write(
        ALONE
        + """
run(ValueError("parent's"))
dist.destroy_process_group()
if os.fork() == 0:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    run(ValueError("child's"))
    sys.stdin.readline()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""
    )
    rank = run.start_rank(script)
    assert rank.stdout is not None
    assert rank.stdin is not None
    child = int(rank.stdout.readline())
    assert run.wait_beat(child).thread_failure == ()
    rank.stdin.write("\n")
    rank.stdin.flush()
    (line,) = run.wait_beat(child, lambda b: b.thread_failure != ()).thread_failure
    assert line.startswith("thread upload: ValueError: child's, in fails (")
    rank.communicate("\n", timeout=LONG_S)
    assert rank.returncode == 0
