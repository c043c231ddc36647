"""Raising in a rank from within: on request, where the environment allows it, and nothing before."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from probe_runs import SITE, Run, ask

from hangwatch.model.beats import Beat
from hangwatch.probe.rank import _STUCK_S
from support import LONG_S, wait_for

ALONE = """
import os, signal, sys, threading, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
import hangwatch
def state():
    handlers = [str(signal.getsignal(number)) for number in signal.valid_signals()]
    loaded = [name for name in sys.modules if name.endswith("probe.raising")]
    return [sorted(t.name for t in threading.enumerate()), handlers, sys.excepthook.__qualname__, sys.gettrace(), loaded]
"""
WAITS = """
try:
    print("here", flush=True)
    while not os.path.exists(sys.argv[0] + ".go"):
        time.sleep(0.01)
    print("went on", flush=True)
except hangwatch.HangDetected as error:
    print(type(error).__module__, isinstance(error, RuntimeError), error, flush=True)
finally:
    for number in range(3):
        print(number, flush=True)
sys.stdin.read()  # it stays until the probe has answered
"""
#: A rank that polls in an exception's handler. Its text is Gloo's (torch 2.13), of a peer that has gone.
HANDLES = """
def wait_for(name):
    print(name, flush=True)
    while not os.path.exists(sys.argv[0] + "." + name):
        time.sleep(0.01)
try:
    if os.environ["MET"] == "late":
        wait_for("standing")
    raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:21121")
except RuntimeError as error:
    try:
        if os.environ["MET"] == "early":
            dist.all_reduce(torch.ones(1))  # since when it stands still, on a slow machine too
        wait_for("handling")
        print("went on with", error, flush=True)
    except hangwatch.HangDetected as found:
        print("met", found, flush=True)
"""
#: Rank 1 sends nothing. Gloo's recorder shows a broadcast once it has begun, and a ``recv`` not at all.
RECEIVES = """
import os, sys, torch, torch.distributed as dist
import hangwatch
dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=int(os.environ["RANK"]), world_size=2)
try:
    print("here", flush=True)
    if dist.get_rank() == 1:
        sys.stdin.read()
    else:
        dist.broadcast(torch.zeros(1), src=1)
except hangwatch.HangDetected as error:
    print("met", error, flush=True)
"""
#: A program with a use of its own for pending calls, as nvidia-resiliency-ext has it (``inprocess/progress_watchdog.py``, 0.4.1).
PENDING_CALLS = """
import ctypes
called = []
callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda argument: called.append(argument) or 0)
add = ctypes.pythonapi.Py_AddPendingCall
add.argtypes = [type(callback), ctypes.c_void_p]
try:
    print("here", flush=True)
    while True:
        time.sleep(0.01)
except hangwatch.HangDetected:
    pass
assert add.argtypes == [type(callback), ctypes.c_void_p]
assert add(callback, None) == 0
while not called:
    time.sleep(0.01)
print("called", called, flush=True)
sys.stdin.read()
"""
PYTHONPATH = str(SITE.parents[2])
_STANDING_NS = int(_STUCK_S * 1e9)


def control(run: Run, pid: int) -> str:
    """The probe's own socket."""
    path = run.wait_beat(pid, lambda beat: beat.control is not None).control
    assert path is not None
    return path


def request(path: str, line: bytes) -> bytes:
    """The answer. A probe that is late in reading a request, on a busy machine, closes it without one; the agent asks again."""
    return wait_for(lambda: ask(path, line), LONG_S, "the probe's answer")


def test_the_verdict_is_raised_where_the_program_is(run: Run) -> None:
    """The main thread raises it once, in an ordinary ``try``, whose ``finally`` runs; the last beat says that it has."""
    rank = run.start_rank(run.write(ALONE + WAITS), HANGWATCH_RAISE="1", PYTHONPATH=PYTHONPATH)
    path = control(run, rank.pid)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "here\n"
    assert request(path, "raise stall: rank 1 is “stuck”\n".encode()) == b"begun"
    out, err = rank.communicate(timeout=LONG_S)
    assert (out.splitlines(), rank.returncode) == (["hangwatch True stall: rank 1 is “stuck”", "0", "1", "2"], 0), err
    beat = run.beat(rank.pid)
    assert beat is not None
    assert (beat.raised, beat.ended, beat.problems) == (True, True, ())


@pytest.mark.parametrize(
    ("met", "says"),
    [
        ("early", "met stall"),
        (
            "late",
            "went on with stall [raised as RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer",
        ),
    ],
)
def test_a_rank_that_has_lost_its_peer_to_the_verdict_is_not_raised_in_again(run: Run, met: str, says: str) -> None:
    """The peers have raised a moment before: the error that this rank met in its wait says so. An older one is where it hangs."""
    script = run.write(ALONE + HANDLES)
    rank = run.start_rank(script, HANGWATCH_RAISE="1", PYTHONPATH=PYTHONPATH, MET=met)
    path = control(run, rank.pid)

    def wait_for_beat(what: str, seen: Callable[[Beat], bool]) -> None:
        wait_for(lambda: (beat := run.beat(rank.pid)) is not None and seen(beat), LONG_S, what)

    assert rank.stdout is not None
    if met == "late":
        assert rank.stdout.readline() == "standing\n"
        stands_ns = time.time_ns() + 2 * _STANDING_NS
        wait_for_beat("a beat of its standstill", lambda beat: beat.at_ns > stands_ns)
        script.with_name(script.name + ".standing").touch()
    assert rank.stdout.readline() == "handling\n"
    last = run.beat(rank.pid)
    begun = last.counter + 1 if last is not None else 1  # it may have begun before
    wait_for_beat("what it handles", lambda beat: bool(beat.handled) and beat.counter > begun)
    assert request(path, b"raise stall\n") == b"begun"
    wait_for_beat("the verdict's arrival", lambda beat: beat.raised)
    script.with_name(script.name + ".handling").touch()
    out, err = rank.communicate(timeout=LONG_S)
    assert out.startswith(says), err


def test_pending_calls_of_the_program_work_as_before(run: Run) -> None:
    """Its functions of ``ctypes.pythonapi`` are attributes that all code of the process shares."""
    rank = run.start_rank(run.write(ALONE + PENDING_CALLS), HANGWATCH_RAISE="1", PYTHONPATH=PYTHONPATH)
    path = control(run, rank.pid)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "here\n"
    assert request(path, b"raise stall\n") == b"begun"
    out, err = rank.communicate(timeout=LONG_S)
    assert (out, rank.returncode) == ("called [None]\n", 0), err


def test_a_wait_goes_on_until_it_is_broken(run: Run) -> None:
    """A rank that was asked while it waits raises nothing before its wait is ended, which is asked for by itself."""
    script = run.write(RECEIVES)
    rank, other = (run.start_rank(script, number, 2, HANGWATCH_RAISE="1", PYTHONPATH=PYTHONPATH) for number in range(2))
    path = control(run, rank.pid)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "here\n"
    run.wait_beat(rank.pid, lambda beat: any(group.enqueued > 0 for group in beat.groups))
    assert request(path, b"raise stall\n") == b"begun"
    asked_ns = time.time_ns() + _STANDING_NS
    wait_for(lambda: (beat := run.beat(rank.pid)) is not None and beat.at_ns > asked_ns, LONG_S, "a beat after it")
    beat = run.beat(rank.pid)
    assert beat is not None
    assert not beat.raised
    ask(path, b"break\n")  # it may end before it has answered
    out, err = rank.communicate(timeout=LONG_S)
    assert (out, rank.returncode) == ("met stall\n", 0), err
    other.communicate(timeout=LONG_S)


def test_without_the_variable_nobody_can_raise(run: Run) -> None:
    """The request is refused, and the program goes on."""
    script = run.write(ALONE + WAITS)
    rank = run.start_rank(script, PYTHONPATH=PYTHONPATH)
    path = control(run, rank.pid)
    assert request(path, b"raise stall\n") == b"refused"
    asked_ns = time.time_ns()
    wait_for(lambda: (beat := run.beat(rank.pid)) is not None and beat.at_ns > asked_ns, 60, "a beat after it")
    script.with_name(script.name + ".go").touch()
    out, err = rank.communicate(timeout=LONG_S)
    assert out.splitlines() == ["here", "went on", "0", "1", "2"], err
    beat = run.beat(rank.pid)
    assert beat is not None
    assert not beat.raised


def test_nothing_is_active_before_a_hang(run: Run) -> None:
    """Threads, signal handlers, hooks are those of a probed rank; the module itself is loaded only where it was asked for."""
    script = run.write(ALONE + "print(*state(), sep='\\n')\n")
    states = []
    for more in ({}, {"HANGWATCH_RAISE": "0"}, {"HANGWATCH_RAISE": "1"}):
        rank = run.start_rank(script, PYTHONPATH=PYTHONPATH, **more)
        out, err = rank.communicate(timeout=LONG_S)
        assert rank.returncode == 0, err
        states.append(out.splitlines())
    plain, refused, allowed = states
    assert refused == plain
    assert allowed[:-1] == plain[:-1]
    assert plain[-1] == "[]"
    assert allowed[-1] != "[]"
