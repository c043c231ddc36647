"""In which files a thread runs: real threads that the kernel samples, and the formats."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangwatch.model.capture import RankIdentity
from hangwatch.sources.proc import running_code
from hangwatch.sources.proc.files import read_stat
from hangwatch.sources.proc.maps import parse_maps
from hangwatch.sources.proc.running_code import RunningCode, name_files, parse_records
from support import wait_for

MAPS = b"""\
55d0c8a00000-55d0c8a01000 r--p 00000000 fe:00 1 /usr/bin/python3.11
55d0c8a01000-55d0c8cb0000 r-xp 00001000 fe:00 1 /usr/bin/python3.11
7f1000000000-7f1000001000 r-xp 00000000 fe:00 2 /opt/cuda lib/libcuda.so.550.54 (deleted)
7f2000000000-7f2000001000 rwxp 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
nonsense
zz-zz r-xp 0 0 0 /x
"""


def record(kind: int, body: bytes) -> bytes:
    """One record of the ring, as ``perf_event_header`` begins it."""
    return struct.pack("=IHH", kind, 0, 8 + len(body)) + body


def sample(address: int) -> bytes:
    """A sample of an instruction pointer."""
    return record(9, struct.pack("=Q", address))


def test_samples_are_read_and_all_else_is_passed_over() -> None:
    """Records of another kind, one that is cut off, one whose size leads nowhere."""
    data = sample(1) + record(5, bytes(16)) + sample(2)
    assert parse_records(data) == (1, 2)
    assert parse_records(data + sample(3)[:-1]) == (1, 2)
    assert parse_records(data + struct.pack("=IHH", 9, 0, 0) + sample(3)) == (1, 2)
    assert parse_records(b"") == ()


def test_addresses_have_the_names_of_their_files() -> None:
    """The most frequent first; code without a file has no name, an address in no mapping neither."""
    addresses = (
        0x7F1000000010,
        0x7F1000000FFF,
        0x7F1000000010,
        0x55D0C8A01000,
        0x55D0C8A01000,
        0x7FFD00000001,
        0x7F2000000000,
    )
    files = name_files(addresses, parse_maps(MAPS))
    assert files[:2] == ("libcuda.so.550.54", "python3.11")
    assert set(files[2:]) == {"[vdso]", ""}
    assert name_files((0x55D0C8A00010, 0x7F1000001000), parse_maps(MAPS)) == ("",)


@pytest.fixture
def packing(real: None) -> Iterator[RankIdentity]:
    """A process that packs data, of which it says when it has begun."""
    program = "import os, zlib\nb = os.urandom(1 << 20)\nprint(flush=True)\nwhile True: zlib.compress(b)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield RankIdentity(3, process.pid, 0.0)
        process.kill()


def test_a_thread_is_found_in_the_library_that_it_runs_in(packing: RankIdentity) -> None:
    """And goes on meanwhile."""
    with RunningCode() as code:
        code.watch([packing])
        code.watch([packing])  # the same once more is none
        if code.read()[1]:
            pytest.skip(str(code.read()[1][0]))
        read = lambda: code.read()[0].get(packing.pid)  # noqa: E731
        found = wait_for(read, 30.0, "samples of a thread that runs")
        maps = Path(f"/proc/{packing.pid}/maps").read_text()
        assert [name for name in found if name not in maps] == []
    stat = read_stat(packing.pid)
    assert stat is not None
    assert stat.state in {"R", "S"}


@pytest.mark.usefixtures("real")
def test_a_thread_that_may_not_be_sampled_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what would help; of one that is gone, nothing does."""

    def refuse(_: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(running_code, "CodeSamples", refuse)
    with RunningCode() as code:
        code.watch([RankIdentity(3, 1, 0.0)])
        files, (gap,) = code.read()
    assert (files, gap.source, gap.rank, gap.reason) == ({}, "running code", 3, "cannot be sampled: Permission denied")
    assert "CAP_PERFMON" in gap.hint
    monkeypatch.undo()
    with subprocess.Popen(["true"]) as gone:
        pass
    with RunningCode() as code:
        code.watch([RankIdentity(3, gone.pid, 0.0)])
        assert [gap.hint for gap in code.read()[1]] == [""]
