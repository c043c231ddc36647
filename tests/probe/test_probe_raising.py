"""Raising in a rank from within: on request, where the environment allows it, and nothing before."""

from __future__ import annotations

import time

import pytest
from probe_runs import SITE, Run, ask

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
print("here", flush=True)
try:
    while not os.path.exists(sys.argv[0] + ".go"):
        time.sleep(0.01)
    print("went on", flush=True)
except hangwatch.HangDetected as error:
    print(type(error).__module__, isinstance(error, RuntimeError), error, flush=True)
finally:
    for number in range(3):
        print(number, flush=True)
"""
PYTHONPATH = str(SITE.parents[2])


def control(run: Run, pid: int) -> str:
    """The probe's own socket."""
    path = run.wait_beat(pid, lambda beat: beat.control is not None).control
    assert path is not None
    return path


def test_the_verdict_is_raised_where_the_program_is(run: Run) -> None:
    """The main thread raises it once, in an ordinary ``try``, whose ``finally`` runs; the last beat says that it has."""
    rank = run.start_rank(run.write(ALONE + WAITS), HANGWATCH_RAISE="1", PYTHONPATH=PYTHONPATH)
    path = control(run, rank.pid)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "here\n"
    assert ask(path, "raise stall: rank 1 is “stuck”\n".encode()) == b"begun"
    out, err = rank.communicate(timeout=LONG_S)
    assert (out.splitlines(), rank.returncode) == (["hangwatch True stall: rank 1 is “stuck”", "0", "1", "2"], 0), err
    beat = run.beat(rank.pid)
    assert beat is not None
    assert (beat.raised, beat.ended, beat.problems) == (True, True, ())


def test_without_the_variable_nobody_can_raise(run: Run) -> None:
    """The request is refused, and the program goes on."""
    script = run.write(ALONE + WAITS)
    rank = run.start_rank(script, PYTHONPATH=PYTHONPATH)
    path = control(run, rank.pid)
    assert ask(path, b"raise stall\n") == b"refused"
    asked_ns = time.time_ns()
    wait_for(lambda: (beat := run.beat(rank.pid)) is not None and beat.at_ns > asked_ns, 60, "a beat after it")
    script.with_name(script.name + ".go").touch()
    out, err = rank.communicate(timeout=LONG_S)
    assert out.splitlines() == ["here", "went on", "0", "1", "2"], err
    beat = run.beat(rank.pid)
    assert beat is not None
    assert not beat.raised


@pytest.mark.parametrize("allowed", [None, "0", "1"])
def test_nothing_is_active_before_a_hang(run: Run, allowed: str | None) -> None:
    """Threads, signal handlers, hooks are those of a probed rank; the module itself is loaded only where it was asked for."""
    script = run.write(ALONE + "print(*state(), sep='\\n')\n")
    states = []
    for more in ({}, {} if allowed is None else {"HANGWATCH_RAISE": allowed}):
        rank = run.start_rank(script, PYTHONPATH=PYTHONPATH, **more)
        out, err = rank.communicate(timeout=LONG_S)
        assert rank.returncode == 0, err
        states.append(out.splitlines())
    plain, found = states
    assert found[:-1] == plain[:-1]
    assert plain[-1] == "[]"
    assert (found[-1] != "[]") is (allowed == "1")
