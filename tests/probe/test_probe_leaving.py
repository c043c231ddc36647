"""What a rank leaves where its program ends, and that it ends as it would without us."""

from __future__ import annotations

import signal
from pathlib import Path

from probe_runs import Run, ask

from hangwatch.model.capture import RankIdentity
from hangwatch.model.left import Left
from hangwatch.sources.beats.left import parse_left, read_left
from hangwatch.sources.proc.files import boot_time_s
from support import LONG_S

PROGRAM = """
import os, sys
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=2)
first = torch.ones(4)
dist.all_reduce(first)
def step():
    {body}
step()
{end}
"""
#: Rank 0 has no room for what rank 1 sends.
SIZES = "dist.all_reduce(torch.ones(4 + 2 * rank))"


def lefts(run: Run, body: str, end: str = "", **environment: str) -> tuple[list[tuple[int, str]], list[Left | None]]:
    """The status and the errors of both ranks, and what each has left."""
    script = run.write(PROGRAM.format(body=body, end=end))
    ranks = [run.start_rank(script, rank, 2, **environment) for rank in (0, 1)]
    errors = [rank.communicate(timeout=LONG_S)[1] for rank in ranks]
    ended = [(rank.returncode, error) for rank, error in zip(ranks, errors, strict=True)]
    return ended, [_left(run.directory, rank.pid) for rank in ranks]


def _left(directory: Path, pid: int) -> Left | None:
    """What a process has left, whenever it began."""
    path = directory / "ranks" / f"{pid}.left"
    if not path.exists():
        return None
    left = parse_left(path.read_bytes())
    start_s = boot_time_s() + left.start_ticks / 100
    assert read_left(directory, [RankIdentity(0, pid, start_s)]) == {pid: left}
    assert read_left(directory, [RankIdentity(0, pid, start_s - 60.0)]) == {}, "another process had the pid"
    return left


def test_a_rank_that_gloo_aborts_leaves_the_call_that_it_was_in(run: Run) -> None:
    """Gloo says what it says without us, the status is its own, and the last operation on the record is the one in flight."""
    ((status, error), _), (left, other) = lefts(run, SIZES, HANGWATCH_ABORTS="1")
    assert status == -signal.SIGABRT
    assert "op.preamble.length <= op.nbytes" in error
    assert error.count("terminate called") == 1
    assert left is not None
    assert (left.how, left.rank, left.error) == ("terminate", 0, ("gloo::EnforceNotMet",))
    assert left.stack is not None
    assert [frame.function for frame in left.stack.threads[0].frames][:3] == ["all_reduce", "wrapper", "step"]
    assert left.flight is not None
    last = left.flight.operations[-1]
    assert (last.op, last.input_sizes, last.completed) == ("all_reduce", ((4,),), False)
    assert last.frames is not None
    assert any(frame.function == "step" for frame in last.frames)
    assert other is not None
    assert other.flight is not None
    assert other.flight.operations[-1].input_sizes == ((6,),)


def test_an_abort_waits_for_nothing_unless_asked_to(run: Run) -> None:
    """What records the calls at an abort waits for the GIL, which a thread of the program may hold for good."""
    holds = "__import__('ctypes').PyDLL(None).sleep(600)"
    # Gloo's threads need the GIL to let go of a tensor that Python has too (PyTorch 2.13), or that only they have.
    free = "while sys.getrefcount(first) > 2: pass\n    second = torch.ones(4 + 2 * rank)"
    body = f"{free}; work = dist.all_reduce(second, async_op=True); rank or {holds}; work.wait()"
    ((status, error), _), (left, _) = lefts(run, body)
    assert (status, left) == (-signal.SIGABRT, None)
    assert error.count("terminate called") == 1


def test_a_rank_is_asked_before_its_launcher_ends_it(run: Run) -> None:
    """It is in a collective while another one fails, and killed at once; one that has met its peers elsewhere does not answer."""
    script = run.write(PROGRAM.format(body="dist.all_reduce(torch.ones(7)) if rank else sys.stdin.readline()", end=""))
    failing, waiting = (run.start_rank(script, rank, 2) for rank in (0, 1))
    beat = run.wait_beat(waiting.pid, lambda beat: any(group.enqueued > group.completed for group in beat.groups))
    assert beat.control is not None
    ask(beat.control, b"leave elsewhere:1\n")
    assert _left(run.directory, waiting.pid) is None
    ask(beat.control, f"leave {beat.store}\n".encode())
    left = _left(run.directory, waiting.pid)
    waiting.kill()
    failing.kill()
    assert left is not None
    assert (left.how, left.error) == ("asked", ())
    assert left.stack is not None
    assert "step" in [frame.function for frame in left.stack.threads[0].frames]
    assert left.flight is not None
    last = left.flight.operations[-1]
    assert (last.input_sizes, last.completed) == (((7,),), False)


def test_a_rank_that_loses_its_peer_leaves_where_it_was(run: Run) -> None:
    """The exception's first cause counts, with the calls above where it was caught."""
    body = "dist.all_reduce(torch.ones(4)) if rank else sys.exit()"
    wrapped = (
        f"try:\n        {body}\n    except RuntimeError as error:\n        raise ValueError('it failed') from error"
    )
    (_, (status, _)), (first, left) = lefts(run, wrapped)
    assert status == 1
    assert left is not None
    assert left.how == "exit"
    assert "RuntimeError" in left.error[-1]
    assert left.stack is not None
    assert [frame.function for frame in left.stack.threads[0].frames][-2:] == ["step", "<module>"]
    assert first is not None
    assert (first.error, first.stack, first.reported) == ((), None, True)


def test_a_rank_that_is_through_leaves_its_record(run: Run) -> None:
    """What the others wait for shows only beside what it has called itself, also after it has destroyed its groups."""
    (_, (status, error)), found = lefts(run, "pass", "if rank: dist.destroy_process_group()")
    assert status == 0, error
    for left in found:
        assert left is not None
        assert left.flight is not None
        assert left.flight.operations[-1].group.ranks == (0, 1)


def test_a_program_of_one_rank_leaves_nothing(run: Run) -> None:
    """There is nobody whose calls might not match its own."""
    script = run.write(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "raise ValueError('no such shard')\n"
    )
    rank = run.start_rank(script)
    rank.communicate(timeout=LONG_S)
    assert _left(run.directory, rank.pid) is None
