"""In which mapped files a thread runs: its instruction pointer, sampled by the kernel while it goes on.

May import hangwatch.model, ``sources.proc`` and the standard library. ``perf_event_open(2)``: the software event ``task-clock``
interrupts the core that runs the thread for about a microsecond a sample. Nothing is attached to the process, no signal is sent,
and the thread is not stopped, as it is for a debugger or for ``py-spy --native``. Structures are those of ``linux/perf_event.h``,
in the first size that it had (``PERF_ATTR_SIZE_VER0``), which every kernel takes. It needs CAP_PERFMON or
``kernel.perf_event_paranoid`` of 2 or less, and a container whose filter of system calls lets it through.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from types import TracebackType

from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.sources.proc.maps import Mapping, read_maps

SOURCE = "running code"
HINT = (
    "give the agent CAP_PERFMON, or set kernel.perf_event_paranoid to 2: what spins for its device is known sooner then"
)

#: One sample a millisecond of the thread's own CPU time.
PERIOD_NS = 1_000_000
_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241}
_TYPE_SOFTWARE, _TASK_CLOCK, _SAMPLE_IP, _RECORD_SAMPLE = 1, 1, 1, 9
#: Bits of ``perf_event_attr``: neither the kernel's own code nor a hypervisor's is sampled.
_EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 5, 1 << 6
#: type, size, config, sample_period, sample_type, read_format, flags, wakeup_events, bp_type, config1.
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_HEADER = struct.Struct("=IHH")
#: Where ``data_head`` is in the first page of the buffer (``perf_event_mmap_page``).
_DATA_HEAD = 1024
#: Pages of the ring, a power of two: 8 KiB are 512 samples.
_DATA_PAGES = 2
_CLOSE_ON_EXEC = 1 << 3


class CodeSamples:
    """Samples of one thread, by its number here, from when it is made until it is closed. Raises OSError where it may not be."""

    def __init__(self, thread: int) -> None:
        number = _CALL_NUMBERS.get(platform.machine())
        if number is None:
            raise OSError("the number of perf_event_open is not known here")
        attributes = ctypes.create_string_buffer(
            _ATTRIBUTES.pack(
                _TYPE_SOFTWARE, _ATTRIBUTES.size, _TASK_CLOCK, PERIOD_NS, _SAMPLE_IP, 0,
                _EXCLUDE_KERNEL | _EXCLUDE_HV, 0, 0, 0,
            )
        )  # fmt: skip
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        arguments = (number, ctypes.addressof(attributes), thread, -1, -1, _CLOSE_ON_EXEC)
        opened = libc.syscall(*(ctypes.c_long(argument) for argument in arguments))
        if opened < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._descriptor = opened
        try:
            self._ring = mmap.mmap(opened, (1 + _DATA_PAGES) * mmap.PAGESIZE)
        except OSError:
            os.close(opened)
            raise

    def addresses(self) -> tuple[int, ...]:
        """The addresses at which the thread was found, in order of time."""
        (head,) = struct.unpack_from("=Q", self._ring, _DATA_HEAD)
        # The ring is never drained: it stops filling where it is full, and what is in it is whole.
        size = _DATA_PAGES * mmap.PAGESIZE
        return parse_records(self._ring[mmap.PAGESIZE : mmap.PAGESIZE + min(head, size)])

    def close(self) -> None:
        """End the sampling."""
        self._ring.close()
        os.close(self._descriptor)


def parse_records(data: bytes) -> tuple[int, ...]:
    """The addresses in a buffer of ``perf_event_header`` records; what is no sample, or is cut off, is passed over."""
    return tuple(_samples(data))


def _samples(data: bytes) -> Iterator[int]:
    at = 0
    while at + _HEADER.size <= len(data):
        kind, _, size = _HEADER.unpack_from(data, at)
        if size < _HEADER.size or at + size > len(data):
            return
        if kind == _RECORD_SAMPLE and size >= _HEADER.size + 8:
            yield struct.unpack_from("=Q", data, at + _HEADER.size)[0]
        at += size


def name_files(addresses: tuple[int, ...], maps: Sequence[Mapping]) -> tuple[str, ...]:
    """The names of the files in which these addresses are, the most frequent first; an empty name for what is in none."""
    code = sorted(one for one in maps if one.executable)
    starts = [one.start for one in code]

    def name(address: int) -> str:
        at = bisect_right(starts, address) - 1
        return PurePosixPath(code[at].path).name if at >= 0 and address in code[at] else ""

    return tuple(file for file, _ in Counter(map(name, addresses)).most_common())


class RunningCode:
    """The main threads of several processes, sampled from ``watch`` until the block ends."""

    def __init__(self) -> None:
        self._watched: dict[int, CodeSamples] = {}
        self._gaps: list[Gap] = []

    def __enter__(self) -> RunningCode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for samples in self._watched.values():
            samples.close()

    def watch(self, ranks: Iterable[RankIdentity]) -> None:
        """Begin with the main threads of these."""
        for identity in ranks:
            if identity.pid in self._watched:
                continue
            try:
                self._watched[identity.pid] = CodeSamples(identity.pid)
            except OSError as error:
                hint = "" if error.errno == errno.ESRCH else HINT
                self._gaps.append(Gap(SOURCE, f"not to be sampled: {error.strerror or error}", identity.rank, hint))

    def read(self) -> tuple[dict[int, tuple[str, ...]], tuple[Gap, ...]]:
        """By pid the names of the files in which its main thread was found, the most frequent first, and who may not be sampled.

        A thread that did not run is in none.
        """
        found = {pid: samples.addresses() for pid, samples in self._watched.items()}
        return {pid: name_files(at, read_maps(pid)) for pid, at in found.items() if at}, tuple(self._gaps)
