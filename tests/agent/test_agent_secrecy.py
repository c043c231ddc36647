"""Values of secret variables are taken out of everything a capture says of a job."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import psutil
import pytest
from bundles_on_disk import recorded_capture

from hangwatch.agent.capturing import redact as secrecy
from hangwatch.agent.capturing.redact import hide_in, hide_secrets, secret_values
from hangwatch.model.capture import Capture, Gap, RankCapture, RankIdentity
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Block, Frame, StackSample, ThreadStack
from hangwatch.sources.redaction import REDACTED
from support import wait_for

WORD = "correct-horse"


def planted() -> Capture:
    """A capture with the word in every text of the job's own."""
    said = f"it said {WORD} twice"
    capture = recorded_capture()
    frame = Frame("f", "train.py", 3, said, {"x": said}, (Block("if", 1, said),))
    stack = StackSample(1, (ThreadStack(1, "MainThread", True, False, False, (frame,)),))
    child = ChildProcess(9, "python", "S", 0.0, stack=(said,), side_threads=(said,))
    process = ProcessSample(1, 5, "S", blocked_on=said, children=(child,))
    rank = capture.ranks[0]
    assert rank.flight is not None
    operations = tuple(msgspec.structs.replace(one, frames=(frame,)) for one in rank.flight.operations)
    full = RankCapture(
        rank.identity,
        (process,),
        (stack,),
        msgspec.structs.replace(rank.flight, operations=operations),
        log_error=(said,),
        thread_error=(said,),
        handled_error=(said,),
    )
    job = msgspec.structs.replace(capture.job, command=said)
    return msgspec.structs.replace(capture, job=job, ranks=(full,), gaps=(Gap("probe", said),))


def test_no_field_keeps_the_word() -> None:
    """Stacks, call sites, locals, blocks, errors, children, gaps and the command: none; everything else is as it was."""
    capture = planted()
    before = msgspec.json.encode(capture)
    hidden = msgspec.json.encode(hide_in(capture, (WORD,)))
    assert before.count(WORD.encode()) >= 12
    assert hidden == before.replace(WORD.encode(), REDACTED.encode())
    assert hide_in(capture, ("another-word",)) == capture


@pytest.mark.usefixtures("real")
def test_the_words_come_from_the_environment_of_the_ranks() -> None:
    """What a living rank's environment calls a password is hidden in the capture of that rank."""
    environment = {**os.environ, "DB_PASSWORD": WORD}
    process = subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE)
    try:
        # The kernel lets us go on before it has shown the environment of what it executes.
        wait_for(psutil.Process(process.pid).environ, what="the environment")
        capture = planted()
        identity = msgspec.structs.replace(
            capture.ranks[0].identity, pid=process.pid, start_time=psutil.Process(process.pid).create_time()
        )
        capture = msgspec.structs.replace(
            capture, ranks=(msgspec.structs.replace(capture.ranks[0], identity=identity),)
        )
        assert WORD.encode() not in msgspec.json.encode(hide_secrets(capture))
    finally:
        process.communicate(b"\n")


def test_an_environment_that_is_not_there_yet_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is just being executed shows an empty one: that is not taken for one without secrets, then or later."""
    shown = iter((b"", None, f"DB_PASSWORD={WORD}".encode()))
    monkeypatch.setattr(secrecy, "read_whole", lambda *_: next(shown))
    ranks = [RankIdentity(0, 2**22 + 7, 1000.0, "node-0")]
    found = [secret_values(ranks) for _ in range(4)]
    assert found == [frozenset(), frozenset(), frozenset({WORD}), frozenset({WORD})]
