"""In which mapped files a thread runs: its instruction pointer, sampled by the kernel without stopping it.

May import hangwatch.model, ``sources.proc`` and the standard library. ``perf_event_open(2)``: the software event
``task-clock`` interrupts the core that runs the thread for about a microsecond per sample. Unlike with a debugger or
``py-spy --native``, nothing is attached to the process, no signal is sent, and the thread is not stopped. Structures
are those of ``linux/perf_event.h``, in their first size (``PERF_ATTR_SIZE_VER0``), which every kernel takes. It needs
CAP_PERFMON or ``kernel.perf_event_paranoid`` of 2 or less, and a container whose filter of system calls lets it
through.
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
    "give the agent CAP_PERFMON, or set kernel.perf_event_paranoid to 2, so that ranks that spin for "
    "their GPU are recognized sooner"
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
    """Samples of one thread, by our number of it, until closed. Raises OSError if sampling is not permitted."""

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
        """Return the sampled addresses in order of time."""
        (head,) = struct.unpack_from("=Q", self._ring, _DATA_HEAD)
        # The ring is never drained: once full, it stops, and its content stays whole.
        size = _DATA_PAGES * mmap.PAGESIZE
        return parse_records(self._ring[mmap.PAGESIZE : mmap.PAGESIZE + min(head, size)])

    def close(self) -> None:
        """Stop sampling."""
        self._ring.close()
        os.close(self._descriptor)


def parse_records(data: bytes) -> tuple[int, ...]:
    """Return the addresses in a buffer of ``perf_event_header`` records; other and cut records are skipped."""
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
    """Return the names of the files that hold these addresses, the most frequent first; an empty name for no file."""
    code = sorted(one for one in maps if one.executable)
    starts = [one.start for one in code]

    def name(address: int) -> str:
        at = bisect_right(starts, address) - 1
        return PurePosixPath(code[at].path).name if at >= 0 and address in code[at] else ""

    return tuple(file for file, _ in Counter(map(name, addresses)).most_common())


class RunningCode:
    """Samples the main threads of several processes from ``watch`` to the end of the block."""

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
        """Start sampling the main threads of ``ranks``."""
        for identity in ranks:
            if identity.pid in self._watched:
                continue
            try:
                self._watched[identity.pid] = CodeSamples(identity.pid)
            except OSError as error:
                hint = "" if error.errno == errno.ESRCH else HINT
                self._gaps.append(Gap(SOURCE, f"cannot be sampled: {error.strerror or error}", identity.rank, hint))

    def read(self) -> tuple[dict[int, tuple[str, ...]], tuple[Gap, ...]]:
        """Return the files in which each main thread was found, by pid, most frequent first; and gaps.

        A thread that did not run is in no file. A gap names processes that may not be sampled.
        """
        found = {pid: samples.addresses() for pid, samples in self._watched.items()}
        return {pid: name_files(at, read_maps(pid)) for pid, at in found.items() if at}, tuple(self._gaps)
