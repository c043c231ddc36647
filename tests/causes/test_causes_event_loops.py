"""A main thread waits for an event loop in another thread of its process: what that loop waits for decides."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.collectives import Group
from hangwatch.model.processes import ThreadSample
from hangwatch.model.stacks import Frame, TaskStack, ThreadStack
from worlds import collective_frames, operation, rank, world

_SITE = "/opt/venv/lib/python3.11/site-packages"
_WAITS = (
    Frame("wait", "/usr/lib/python3.11/threading.py", 629),
    Frame("sync", f"{_SITE}/fsspec/asyn.py", 94, "if event.wait(1):"),
    Frame("<module>", "/srv/train/train.py", 10, "shard = files.cat_file(url)"),
)
_LOOP = (
    Frame("select", "/usr/lib/python3.11/selectors.py", 468),
    Frame("_run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
    Frame("run_forever", "/usr/lib/python3.11/asyncio/base_events.py", 607),
)
_READS = TaskStack("Task-1", (Frame("read", f"{_SITE}/aiohttp/streams.py", 716, "await self._waiter"),))
_CONNECTION = "socket:[735997] to 10.0.0.9:443"


@pytest.mark.parametrize(
    ("watched", "tasks", "cause"),
    [
        (_CONNECTION, (_READS,), "blocked-io"),
        (_CONNECTION, (), "thread-stall"),
        ("socket:[7] listening on port 8000", (_READS,), "thread-stall"),
        ("anon_inode:[eventpoll]", (_READS,), "thread-stall"),
    ],
    ids=["reads", "keeps-its-connection", "serves", "has-no-connection"],
)
def test_the_connection_is_named_if_a_coroutine_waits_for_it(
    watched: str, tasks: tuple[TaskStack, ...], cause: str
) -> None:
    """A loop that keeps a connection open for later, or serves clients, is not what the main thread waits for."""
    group = Group("0", (0, 1), "default_pg")
    reads = rank(0, (operation(1, group, 1),), _WAITS)
    loop = ThreadStack(77, "fsspecIO", False, False, False, _LOOP, ident=77)
    own = (ThreadSample(77, "S", switches=2, syscall="epoll_wait", blocked_on=watched),)
    reads = msgspec.structs.replace(
        reads,
        processes=tuple(msgspec.structs.replace(p, threads=own) for p in reads.processes),
        stacks=tuple(msgspec.structs.replace(s, threads=(*s.threads, loop)) for s in reads.stacks),
        tasks=tasks,
    )
    waits = (operation(1, group, 1), operation(2, group, 2, done=False))
    found = diagnose(world(reads, rank(1, waits, collective_frames("all_reduce")))).verdict
    assert (found.kind, found.culprit_ranks) == ("stall", (0,))
    assert found.cause is not None
    assert found.cause.id == cause
    assert (watched in found.cause.explanation) is (cause == "blocked-io")
