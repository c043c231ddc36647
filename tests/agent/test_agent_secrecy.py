"""Values of secret variables are taken out of everything a capture says of a job."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import psutil
from bundles_on_disk import recorded_capture

from hangwatch.agent.secrecy import hide_in_capture, hide_secrets
from hangwatch.model.capture import Capture, Gap, RankCapture
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Block, Frame, StackSample, ThreadStack
from hangwatch.sources.redaction import REDACTED

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
    hidden = msgspec.json.encode(hide_in_capture(capture, (WORD,)))
    assert before.count(WORD.encode()) >= 12
    assert hidden == before.replace(WORD.encode(), REDACTED.encode())
    assert hide_in_capture(capture, ("another-word",)) == capture


def test_the_words_come_from_the_environment_of_the_ranks() -> None:
    """What a living rank's environment calls a password is hidden in the capture of that rank."""
    environment = {**os.environ, "DB_PASSWORD": WORD}
    process = subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE)
    try:
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
