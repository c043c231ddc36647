"""The kernel's log, as far as it tells why a rank ended or hangs: errors of GPUs and NVSwitches, kills for memory.

May import hangwatch.model, its own parts and the standard library. Records: ``/dev/kmsg`` (Linux,
Documentation/ABI/testing/dev-kmsg): one a read, ``PRIORITY,NUMBER,MICROSECONDS,FLAGS;text``, then lines that begin with a blank.
Lines: ``NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, ..`` (NVIDIA's "XID Errors"), ``nvidia-nvswitch3: SXid (..)``
(its Fabric Manager guide), ``oom-kill:constraint=..`` and ``Killed process`` (mm/oom_kill.c, Linux 5.0 on). Times are the
kernel's own clock, which stops while the machine sleeps.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.devices import KernelEvent, NodeFacts
from hangwatch.sources.discovery.rank_processes import RankProcess, in_first_pid_namespace

NAME = "kernel log"
_DEVICE = "/dev/kmsg"
#: More than the longest record (CONSOLE_EXT_LOG_MAX); a shorter buffer is refused.
_RECORD_BYTES = 16384
_RECORDS_LIMIT = 500_000
_EVENTS_KEPT = 64
_TEXT_CHARS = 300
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<code>\d{1,4}),? ?(?P<rest>.*)")
_XID_PROCESS = re.compile(r"pid='?(?P<pid>\d{1,10})'?(?:, name=(?P<name>[^,]*))?")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:(?P<bus>[0-9A-Fa-f:.]+)\): (?P<code>\d{1,6}),? ?(?P<rest>.*)")
_OOM = re.compile(r"oom-kill:constraint=\w+,.*?task=(?P<name>.*),pid=(?P<pid>\d{1,10}),uid=\d+")
_KILLED = re.compile(
    r"(?:Memory cgroup out of memory|Out of memory(?: \([^)]*\))?): Killed process (?P<pid>\d{1,10}) \((?P<name>.*?)\)"
)
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


class KernelLog:
    """Reads the whole ring buffer each time: it is small, and only read if something is wrong."""

    name = NAME

    def begin(self) -> None:
        """Do nothing: every record has its own time."""

    def read(self, ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """Return the kernel's events since the first of these ranks was started."""
        try:
            records = read_records()
        except OSError as error:
            return _refused(error)
        offset_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        since_ns = int(min((r.identity.start_time for r in ranks), default=0.0) * 1e9)
        events = [e for e in parse_records(records, offset_ns) if e.at_ns >= since_ns]
        by_pid = {r.pid: r.rank for r in ranks} if in_first_pid_namespace() else {}
        return NodeFacts("", 0, events=name_ranks(events[-_EVENTS_KEPT:], by_pid), looked=(NAME,))


def _refused(error: OSError) -> NodeFacts | Gap:
    if error.errno in {errno.EPERM, errno.EACCES}:
        hint = "run the agent as root or with CAP_SYSLOG, or set kernel.dmesg_restrict=0"
        return Gap(NAME, "not readable, so GPU errors and out-of-memory kills are not visible", hint=hint)
    if error.errno == errno.ENOENT:
        hint = "give the container the device /dev/kmsg"
        return Gap(NAME, f"there is no {_DEVICE} here", hint=hint)
    return Gap(NAME, error.strerror or str(error))


def read_records(path: str = _DEVICE) -> list[bytes]:
    """Return all records in the ring buffer, oldest first. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    records: list[bytes] = []
    try:
        while len(records) < _RECORDS_LIMIT:
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten while we read: the next read returns the oldest record left
                continue
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return records


def parse_records(records: Iterable[bytes], offset_ns: int) -> Iterator[KernelEvent]:
    """Yield the records about a GPU, an NVSwitch or a kill.

    ``offset_ns``: wall clock minus the kernel's clock.
    """
    last_kill: KernelEvent | None = None
    for record in records:
        head, _, rest = record.decode("utf-8", "replace").partition(";")
        fields = head.split(",")
        if len(fields) < 3 or not fields[2].isdigit() or len(fields[2]) > 18:
            continue
        event = parse_line(_unescape(rest.partition("\n")[0]), int(fields[2]) * 1000 + offset_ns)
        if event is None:
            continue
        if event.kind == "oom":
            # The kernel tells of each kill twice: why, and what it freed.
            if last_kill is not None and last_kill.pid == event.pid and event.at_ns - last_kill.at_ns < 10**9:
                continue
            last_kill = event
        yield event


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def parse_line(text: str, at_ns: int) -> KernelEvent | None:
    """Return the event in one line of the log, without its prefix; None if it is of no interest here."""
    if "Xid" in text:
        for kind, pattern in (("xid", _XID), ("sxid", _SXID)):
            found = pattern.search(text)
            if found is not None:
                process = _XID_PROCESS.search(found["rest"])
                return KernelEvent(
                    at_ns=at_ns,
                    kind="xid" if kind == "xid" else "sxid",
                    text=text[:_TEXT_CHARS],
                    code=int(found["code"]),
                    bus_id=normal_bus_id(found["bus"]),
                    pid=int(process["pid"]) if process is not None else None,
                    process=(process["name"] or "").strip() if process is not None else "",
                )
    for mark, pattern in (("oom-kill:", _OOM), ("Killed process", _KILLED)):
        if mark in text and (found := pattern.search(text)) is not None:
            return KernelEvent(at_ns, "oom", text[:_TEXT_CHARS], pid=int(found["pid"]), process=found["name"])
    return None


def normal_bus_id(text: str) -> str:
    """Return one form for ``00000000:3B:00.0`` (NVML) and ``0000:3b:00`` (the kernel's log)."""
    parts = text.lower().partition(".")[0].split(":")
    if len(parts) == 3 and all(parts):
        return f"{parts[0][-4:].zfill(4)}:{parts[1].zfill(2)}:{parts[2].zfill(2)}"
    return text.lower()


def name_ranks(events: Sequence[KernelEvent], by_pid: Mapping[int, int]) -> tuple[KernelEvent, ...]:
    """Return the events, each with the rank whose process the kernel names."""
    return tuple(
        msgspec.structs.replace(e, rank=by_pid[e.pid]) if e.pid is not None and e.pid in by_pid else e for e in events
    )
