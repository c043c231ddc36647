"""Where a main thread spends its time: py-spy's profile and the kernel's words, as recorded and of a real process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.capturing.arrivals import profile_rank
from hangwatch.model.capture import Gap
from hangwatch.sources.proc.delays import DelayMeter, parse_core_ns, parse_throttled_ns
from hangwatch.sources.stacks.profile import parse_profile, profile_stacks, profile_workers
from hangwatch.sources.stacks.samples import StackFormatError
from support import JobRunner

#: As py-spy 0.4.3 writes it.
RECORDED = {
    "shared": {
        "frames": [
            {"name": "<lambda>", "file": "/srv/p.py", "line": 7, "col": None},
            {"name": "thread (12): side", "file": "", "line": 0, "col": None},
            {"name": "rest", "file": "/srv/p.py", "line": 6, "col": None},
            {"name": "<module>", "file": "/srv/p.py", "line": 10, "col": None},
            {"name": "thread (11): MainThread", "file": "", "line": 0, "col": None},
            {"name": "work", "file": "/srv/p.py", "line": 4, "col": None},
        ]
    },
    "profiles": [
        {"type": "sampled", "name": 'Thread 11 "MainThread"', "unit": "seconds",
         "samples": [[4, 3, 2], [4, 3, 5], [4, 3, 2], [4, 3, 2]], "weights": [0.05] * 4},
        {"type": "sampled", "name": 'Thread 12 "side"', "samples": [[1, 0]], "weights": [0.05]},
    ],
}  # fmt: skip


def test_a_recorded_profile() -> None:
    """The main thread's stacks, deepest first, with their shares; by its name if its number is another namespace's."""
    for pid in (11, 99):
        data = b"py-spy> Sampling process\n\n" + json.dumps(RECORDED).encode() + b"\npy-spy> Wrote speedscope file\n"
        samples, stacks = parse_profile(data, pid)
        assert samples == 4
        assert [(s.share, [(f.function, f.line) for f in s.frames]) for s in stacks] == [
            (0.75, [("rest", 6), ("<module>", 10)]),
            (0.25, [("work", 4), ("<module>", 10)]),
        ]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b'{"shared": {}}', json.dumps(RECORDED).encode()[:-9], b'{"shared": {"frames": [{"name": "\xff"}]}}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)  # fmt: skip
def test_damaged_profiles(data: bytes) -> None:
    """Nothing is guessed."""
    with pytest.raises(StackFormatError):
        parse_profile(data, 11)


@given(st.binary(max_size=200))
def test_parsers_survive_anything(data: bytes) -> None:
    """What is no answer is none; a profile that is none is said to be none."""
    parse_core_ns(data)
    parse_throttled_ns(b"throttled_usec " + data)
    for text in (data, b"{" + data, json.dumps(RECORDED).encode().replace(b"rest", data)):
        with contextlib.suppress(StackFormatError):
            parse_profile(text, 11)


def test_numbers_that_no_kernel_has() -> None:
    """More digits than 64 bits have are no number."""
    assert parse_core_ns(b"1 18446744073709551615 3") == (1, 2**64 - 1)
    assert parse_core_ns(b"1 " + b"9" * 5000 + b" 3") == (1, None)
    assert parse_throttled_ns(b"throttled_time " + b"9" * 5000) is None


def test_frames_that_are_missing() -> None:
    """They are left out."""
    assert parse_profile(b'{"shared": {"frames": []}, "profiles": []}', 11) == (0, ())
    data = b'{"shared": {"frames": []}, "profiles": [{"name": "Thread 11 \\"MainThread\\"", "samples": [[0, 7, -1]]}]}'
    samples, (stack,) = parse_profile(data, 11)
    assert (samples, stack.frames) == (1, ())


def test_what_the_kernel_counts() -> None:
    """``schedstat``, and ``cpu.stat`` of both versions of cgroups."""
    assert parse_core_ns(b"4022 717 9\n") == (4022, 717)
    assert parse_core_ns(b"0 x") == (None, None)
    assert parse_throttled_ns(b"usage_usec 9\nnr_throttled 2\nthrottled_usec 31\n") == 31_000
    assert parse_throttled_ns(b"nr_periods 0\nthrottled_time 31\n") == 31
    assert parse_throttled_ns(b"usage_usec 9\n") is None


#: It computes, sleeps, waits for a lock and reads, in turn.
PROGRAM = """
import os, threading, time
read, write = os.pipe()
def serve():
    while True:
        time.sleep(0.1)
        os.write(write, b"1")
lock = threading.Lock()
def hold():
    while True:
        with lock:
            time.sleep(0.1)
        time.sleep(0.05)
def work(until):
    while time.monotonic() < until:
        pass
for side in (serve, hold):
    threading.Thread(target=side, daemon=True).start()
print("ready", flush=True)
while True:
    work(time.monotonic() + 0.1)
    time.sleep(0.1)
    with lock:
        pass
    while os.read(read, 1) and time.monotonic() % 0.3 < 0.2:
        pass
"""


@pytest.mark.asyncio
async def test_a_real_process(jobs: JobRunner) -> None:
    """It does all of it; nothing of its own side thread counts. A process that is gone is a gap."""
    job = jobs.start([sys.executable, "-c", PROGRAM])
    job.wait_for_output("ready")
    seen = await profile_rank(3, job.pid, 3.0)
    assert seen is not None
    assert seen.rank == 3
    assert seen.samples > 10
    assert {frame.function for stack in seen.stacks for frame in stack.frames} == {"work", "<module>"}
    for share in (seen.reading, seen.sleeping, seen.locked, seen.running):
        assert share is not None
        assert share > 0
    job.end()
    assert isinstance(await profile_stacks(job.pid, 1.0), Gap)
    meter = DelayMeter(job.pid)
    meter.look()
    assert meter.read() == (0.0, 0.0, 0.0, None, None, None)


#: A training that takes so many seconds for a batch which a worker of two loads in a third of a second.
LOADS = """
import sys, time
from torch.utils.data import DataLoader, Dataset
class Batches(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.33)
        return index
if __name__ == "__main__":
    for number, _ in enumerate(DataLoader(Batches(), batch_size=None, num_workers=2)):
        time.sleep(float(sys.argv[1]))
        if number == 1:
            print("ready", flush=True)
"""


@pytest.mark.asyncio
async def test_workers_that_have_time_to_spare(jobs: JobRunner, tmp_path: Path) -> None:
    """Those of a training that takes its batches slowly; not those of one that waits for each."""
    (tmp_path / "loads.py").write_text(LOADS)
    slow, fast = (jobs.start([sys.executable, tmp_path / "loads.py", pause]) for pause in ("2", "0"))
    for job in (slow, fast):
        job.wait_for_output("ready", 60.0)
    idle, busy = await asyncio.gather(profile_workers(slow.pid, 4.0), profile_workers(fast.pid, 4.0))
    assert idle is not None
    assert busy is not None
    assert idle < 0.4
    assert busy > 0.6
    assert await profile_workers(os.getpid(), 1.0) is None
