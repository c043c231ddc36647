"""How real processes end whose parents ask the kernel before we can."""

from __future__ import annotations

import platform
import signal
import subprocess
import threading
from collections.abc import Iterator

import psutil
import pytest

from hangwatch.model.capture import RankIdentity
from hangwatch.sources.proc.ends import ProcessEnds

KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


class Watch:
    """Follows processes, and is told of each end."""

    def __init__(self) -> None:
        self.told = threading.Semaphore(0)
        self.ends = ProcessEnds(self.told.release)

    def start(self, command: str) -> tuple[subprocess.Popen[bytes], RankIdentity]:
        """A shell that awaits a line and then runs ``command``; it is followed."""
        process = subprocess.Popen(["sh", "-c", f"read line; {command}"], stdin=subprocess.PIPE)
        identity = RankIdentity(0, process.pid, psutil.Process(process.pid).create_time())
        self.ends.follow([identity])
        return process, identity

    def status(self, identity: RankIdentity) -> tuple[int | None, int | None] | None:
        """Exit status and signal, once; None where they are not known."""
        end = self.ends.take([identity]).get(identity.pid)
        return (end.code, end.signal) if end is not None else None


@pytest.fixture
def watch(real: None) -> Iterator[Watch]:
    """One that is closed afterwards."""
    watch = Watch()
    yield watch
    watch.ends.close()


@pytest.mark.parametrize(
    ("command", "status"), [("exit 0", (0, None)), ("exit 3", (3, None)), ("kill -9 $$", (None, signal.SIGKILL))]
)
def test_how_a_process_ends_is_seen_before_its_parent_asks(
    watch: Watch, command: str, status: tuple[int | None, int | None]
) -> None:
    """At once, and once only; a process that lives has no status."""
    process, identity = watch.start(command)
    other, living = watch.start("exit 0")
    assert process.stdin is not None
    process.stdin.close()
    assert watch.told.acquire(timeout=60)
    assert watch.status(identity) == status
    assert watch.status(identity) is None
    assert watch.status(living) is None
    process.wait()
    other.communicate()


@pytest.mark.skipif(KERNEL < (6, 15), reason="before Linux 6.15 a pidfd does not tell it")
def test_how_a_process_has_ended_is_known_after_its_parent_has_asked(watch: Watch) -> None:
    """Whoever comes second asks the pidfd."""
    process, identity = watch.start("exit 4")
    with watch.ends._lock:  # nobody looks before the parent has
        process.communicate()
    assert watch.status(identity) == (4, None)


def test_another_process_of_the_same_number_is_not_followed(watch: Watch) -> None:
    """Nor one that is gone."""
    process, identity = watch.start("exit 5")
    earlier = RankIdentity(0, identity.pid, identity.start_time - 60.0)
    watch.ends.follow([earlier])
    process.communicate()
    assert watch.told.acquire(timeout=60)
    watch.ends.follow([RankIdentity(0, identity.pid, identity.start_time + 1e-3)])
    assert watch.status(earlier) is None
    assert watch.ends.take([earlier, identity]).keys() == {identity.pid}
