"""Does a thread's host code wait for the device, and for the ranks behind what is in flight there? Pure.

Such a wait has no Python frame of its own: it is inside whatever operator of the program asks for a value first, by
CUDA's default at the full speed of a core. If the kernel was asked which code the thread runs in
(``sources.proc.running_code``), that decides: in the driver alone it waits, in any other code it works. Words of the
line are a weak sign beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from hangwatch.analysis.motion.loops import main_place
from hangwatch.analysis.stacks.waits import ASKS_DEVICE, Wait
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Operation, in_flight
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Frame, StackSample

#: The beginnings of the file names of devices' runtimes and drivers: CUDA, ROCm.
_DRIVERS = ("libcuda.so", "libcudart", "libnccl", "libamdhip64", "libhsa-runtime64", "librccl")
#: Libraries that code of any kind calls: the C and C++ libraries, their loader, the kernel's clock.
_COMMON = ("libc.so", "libc-", "libpthread", "libstdc++", "libgcc_s", "ld-", "[vdso]", "[vsyscall]")
#: Calls in which no rank waits for an accelerator: ``print(loss)`` may hang in its write and not in its copy.
_NOT_DEVICE_CALLS = frozenset(
    {"read", "readv", "pread64", "write", "writev", "pwrite64", "openat", "fsync", "flock", "fcntl", "recvfrom", "recvmsg",
     "sendto", "sendmsg", "connect", "accept", "accept4", "wait4", "waitid", "nanosleep", "clock_nanosleep"}
)  # fmt: skip
#: Where torch works on the host, perhaps without the interpreter's lock: no wait for a device.
_HOST_WORK = ("torch/utils/", "torch/serialization.py", "torch/storage.py", "torch/_inductor/", "torch/_dynamo/", "torch/hub.py",
              "torch/cuda/nvtx.py", "torch/multiprocessing/", "torch/distributed/checkpoint/")  # fmt: skip
#: A value is asked for without a method: a conversion, or a condition that calls nothing.
_VALUE = re.compile(r"\b(?:float|int|bool|math\.is\w+)\(|^(?:if|elif|while|assert)\b[^(]*$")


def on_nccl(pending: Sequence[Operation]) -> bool:
    """True if the oldest operation in flight is NCCL's: it waits on the GPU, and the program for the GPU somewhere later."""
    return bool(pending) and pending[0].backend == "nccl"


def read_device_wait(
    capture: RankCapture, frames: Sequence[Frame], pending: Sequence[Operation], read: Wait | None
) -> Wait | None:
    """Return the wait of the main thread, with these frames, for the device; None if it is in none.

    ``read``: the wait for the device that its stack alone shows, if any.
    """
    last = capture.sample
    if last is not None and last.syscall in _NOT_DEVICE_CALLS:
        return None
    stays = on_nccl(pending) and _stays_without_lock(capture.stacks[-2:])
    runs_in_driver = _runs_in_driver(last) if stays and last is not None else None
    if runs_in_driver is not None:
        return (read or _make_wait(frames)) if runs_in_driver else None
    if read is not None or not stays:
        return read
    return _read_launch(frames, runs=all(p.state == "R" for p in capture.processes[-2:]))


#: Waits for other ranks on the host, whatever the device does: a watchdog may be held up by them, too.
_ON_HOST = frozenset({"group_creation", "initialization", "store", "communicator"})


#: How it is known that a rank waits for its own device alone: by torch's watchdog, or by a backward pass with nothing in flight.
OwnDevice = Literal["", "watchdog", "backward"]


def awaits_own_device(capture: RankCapture, wait: Wait | None, pending: Sequence[Operation]) -> OwnDevice:
    """Return how it is known that a rank waits for its device and no rank behind it; empty if it is not.

    The rank must be one that does not move.
    """
    if _watchdog_sleeps(capture, wait):
        return "watchdog"
    return (
        "backward" if wait is not None and wait.kind == "backward" and _has_nothing_in_flight(capture, pending) else ""
    )


def _has_nothing_in_flight(capture: RankCapture, pending: Sequence[Operation]) -> bool:
    """True if no NCCL operation is in flight by the recorder, nor one that connects first and has no record yet."""
    if not _records_nccl(capture) or capture.progress is None or capture.unrecorded or pending:
        return False
    return not any(p.enqueued <= 0 and len(p.group.ranks) != 1 for p in capture.progress)


def connects(capture: RankCapture, wait: Wait, pending: Sequence[Operation]) -> bool:
    """True if a call of NCCL is awaited on the host before it has a record: until all members have connected.

    NCCL takes a core all the while, without a context switch (2.28.9 on a GPU; ``corpus/on_card.tar.xz``).
    """
    return wait.kind == "collective" and not pending and _records_nccl(capture)


def _records_nccl(capture: RankCapture) -> bool:
    """True if the last operation that the rank has recorded is NCCL's."""
    flight = capture.flight
    return flight is not None and len(flight.operations) > 0 and flight.operations[-1].backend == "nccl"


def _watchdog_sleeps(capture: RankCapture, wait: Wait | None) -> bool:
    """True if calls to the device do not come back: a watchdog of torch has slept through the last two samples.

    A healthy one looks at the device ten times a second. One that waits for a mutex may wait for what the main thread
    does.
    """
    samples = capture.processes[-2:]
    if len(samples) < 2 or (wait is not None and wait.kind in _ON_HOST) or samples[-1].syscall in _NOT_DEVICE_CALLS:
        return False
    locked = {mutex.thread for mutex in samples[-1].mutexes}
    slept = set(samples[0].watchdogs) & set(samples[-1].watchdogs)
    return any(one.thread not in locked for one in slept)


def assume_device_waits(capture: Capture) -> Capture:
    """Return the capture with every rank that may spin for its device taken to do so; itself if there is no such rank.

    Such a rank may as well be in one long call that computes: only the kernel can tell in which code it runs.
    """
    ranks = tuple(_assumed(rank) if _may_spin(rank) else rank for rank in capture.ranks)
    return capture if all(a is b for a, b in zip(ranks, capture.ranks, strict=True)) else replace(capture, ranks=ranks)


def _may_spin(rank: RankCapture) -> bool:
    """True if the main thread has run, in one place and without the interpreter's lock, since its operation was called."""
    recorded = in_flight(rank.flight.operations) if rank.flight is not None else ()
    if not on_nccl(recorded):
        return False
    began_ns = recorded[0].created_ns
    stacks = [s for s in rank.stacks if s.at_ns > began_ns]
    samples = [p for p in rank.processes if p.at_ns > began_ns]
    runs = all(p.state == "R" and p.switches == samples[0].switches for p in samples)
    return len(samples) > 1 and runs and not samples[-1].runs_in and _stays_without_lock(stacks)


def _assumed(rank: RankCapture) -> RankCapture:
    return replace(rank, processes=(*rank.processes[:-1], replace(rank.processes[-1], runs_in=_DRIVERS[:1])))


def _make_wait(frames: Sequence[Frame]) -> Wait | None:
    return Wait("device", "synchronize", frames[0]) if frames else None


def _runs_in_driver(last: ProcessSample) -> bool | None:
    """True if the thread was found in a device's driver and in no code that works; None if that does not tell."""
    telling = [file for file in last.runs_in if not file.startswith(_COMMON)]
    return all(file.startswith(_DRIVERS) for file in telling) if telling else None


def _stays_without_lock(stacks: Sequence[StackSample]) -> bool:
    """True if the main thread is in the same place in each of these samples, and never has the interpreter's lock there."""
    mains = [s.main for s in stacks]
    alike = len(set(map(main_place, stacks))) == 1
    return len(mains) > 1 and None not in mains and alike and not any(m.owns_gil for m in mains if m)


def _read_launch(frames: Sequence[Frame], *, runs: bool) -> Wait | None:
    """Return the wait of a thread inside any call of torch: for room in the device's queue, or for its result; else None.

    Such a frame alone tells nothing. It is a wait only if the rank is known to have NCCL operations in flight, is found
    in the same call repeatedly, and does not hold the interpreter's lock there. If the program's own line is the
    deepest, as when it calls an operator, it counts if it asks for a value (``outs[0].item()``, ``if loss > 3:``; only
    a wait for a tensor gives up the lock), or if the thread ``runs`` and has tensors at hand. Whether it spins or
    sleeps is the device's setting.
    """
    first = frames[0] if frames else None
    if first is None or any(part in first.file for part in _HOST_WORK):
        return None
    tensors = any(kind in described for described in (first.locals or {}).values() for kind in ("Tensor", "Parameter"))
    line = first.source or ""
    asks = ASKS_DEVICE.search(line) is not None or _VALUE.search(line) is not None
    return _make_wait(frames) if "/torch/" in first.file or asks or (runs and tensors) else None
