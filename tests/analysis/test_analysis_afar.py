"""A rank that awaits an answer of a process that is not seen: it takes as long as it takes, and is no hang for half an hour."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.patience import OUTSIDE_FLOOR_S, fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

WORLD = Group("0", (0, 1), "default_pg")
RAY = "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py"
FIT = Frame("Trainer.fit", "/srv/train/train.py", 24, source="r = ray.get(self.generator.generate.remote(step))")
RECV = Frame("ask", "/srv/train/train.py", 24, source="return json.loads(self.socket.recv(4096))")


def asking(frames: tuple[Frame, ...], blocked_on: str | None = None, *, elsewhere: bool = False) -> RankCapture:
    """Rank 0 outside of any collective, in these frames."""
    one = rank(0, (operation(1, WORLD, 1),), frames)
    call = "recvfrom" if blocked_on else "futex"
    afar = (blocked_on or "").partition(" to ")[2] if elsewhere else ""
    processes = (msgspec.structs.replace(p, syscall=call, blocked_on=blocked_on, elsewhere=afar) for p in one.processes)
    return msgspec.structs.replace(one, processes=tuple(processes))


def waited(one: RankCapture, seconds: float) -> tuple[str, tuple[int, ...]]:
    """Kind and culprits where rank 1 has waited for rank 0 so long, with a patience of six seconds."""
    other = rank(1, (operation(1, WORLD, 1), operation(2, WORLD, 2, done=False)), collective_frames("all_reduce"))
    capture: Capture = world(one, other)
    later = msgspec.structs.replace(capture, at_ns=capture.at_ns + int((seconds - 10.0) * 1e9))
    found = diagnose(later, patience=fixed_patience(6.0)).verdict
    return found.kind, found.culprit_ranks


@pytest.mark.parametrize(
    "one",
    [
        asking((Frame("Worker.get_objects", RAY, 1007), Frame("get", RAY, 2980), FIT)),
        asking((Frame("wait", RAY, 3145), FIT)),
        asking((RECV,), "socket:[77] to 10.0.0.7:8000", elsewhere=True),
    ],
    ids=["ray-get", "ray-wait", "another-machine"],
)
def test_an_answer_from_afar_is_a_warning_for_half_an_hour(one: RankCapture) -> None:
    """The rank that awaits it is named, and nothing is ended."""
    assert waited(one, 10.0) == ("straggler", (0,))
    assert waited(one, OUTSIDE_FLOOR_S - 60.0) == ("straggler", (0,))
    assert waited(one, OUTSIDE_FLOOR_S + 60.0) == ("stall", (0,))


@pytest.mark.parametrize(
    "one",
    [asking((RECV,), "socket:[77] to 127.0.0.1:8000"), asking((RECV,), "pipe:[78]"), asking((RECV,))],
    ids=["this-machine", "a-pipe", "nothing-known"],
)
def test_what_is_read_here_is_a_stall_after_the_patience(one: RankCapture) -> None:
    """A rank that reads from this machine, or a lock, is stuck."""
    assert waited(one, 10.0) == ("stall", (0,))
