"""Files read by several processes, of which one is really killed: one line says so, and the rest is analysed."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dump_jobs import straggling

from hangwatch.analysis.case import build_case
from hangwatch.sources.dumps import gathering, workers
from hangwatch.sources.dumps.contents import Aside, Content
from hangwatch.sources.dumps.decode import RankDump, StackDump
from hangwatch.sources.dumps.gathering import decode_all, gather

pytestmark = pytest.mark.usefixtures("real")

SIZE = 24
FATAL = "rank_17"
_decode_file = gathering.decode_file


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers, however few cores there are."""
    monkeypatch.setattr(workers, "_cores", lambda: 2)


def contents() -> list[Content | Aside]:
    """Dumps of a job in which rank 3 holds the others up."""
    dumps = straggling(SIZE, 3)
    return [Content(f"rank_{rank}", data=pickle.dumps(one, protocol=2)) for rank, one in enumerate(dumps)]


def _die_at_one(content: Content) -> RankDump | StackDump | Aside:
    """What the kernel does to a process that reads a file too large for the machine."""
    if content.name == FATAL:
        os.kill(os.getpid(), signal.SIGKILL)
    return _decode_file(content)


def test_a_killed_worker_costs_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file at which it died is named with the reason; all others are read, and the culprit is found."""
    monkeypatch.setattr(gathering, "decode_file", _die_at_one)
    before = psutil.Process().children()  # other tests' servers
    capture = gather(contents(), job="job", total=SIZE, progress=lambda _done, _total: None).capture
    assert [r.rank for r in capture.ranks] == [rank for rank in range(SIZE) if rank != 17]
    assert build_case(capture).blame.culprits == (3,)
    assert [gap.reason for gap in capture.gaps] == [
        "no usable dump of rank 17 of 24",
        "rank_17: the process that read it died, probably out of memory",
    ]
    assert psutil.Process().children() == before


def test_a_worker_killed_from_outside_costs_nothing() -> None:
    """Whoever it hits, between any two files: what it was at is read again."""
    killed: list[int] = []
    before = psutil.Process().children()

    def watched() -> Iterator[Content | Aside]:
        for number, content in enumerate(contents()):
            children = [child for child in psutil.Process().children() if child not in before]
            if number == 20 and children:
                killed.append(children[0].pid)
                children[0].kill()
            yield content

    found = dict(decode_all(watched()))
    assert killed
    assert sorted(found) == sorted(f"rank_{rank}" for rank in range(SIZE))
    assert all(isinstance(one, RankDump) for one in found.values())


def test_as_many_files_as_are_worth_a_worker_are_read_in_order(tmp_path: Path) -> None:
    """Results come in the order of the files, from several processes."""
    for rank, one in enumerate(straggling(SIZE, 3)):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(one, protocol=2))
    files: list[Content | Aside] = [Content(f"rank_{r}", file=str(tmp_path / f"rank_{r}")) for r in range(SIZE)]
    assert [name for name, _ in decode_all(files)] == [f"rank_{rank}" for rank in range(SIZE)]
