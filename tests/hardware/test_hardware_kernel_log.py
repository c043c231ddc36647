"""The kernel's log: a real kill for memory, GPU errors in the driver's own forms, and whatever else may stand there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.hardware.sources import kernel_log
from hangwatch.hardware.sources.kernel_log import (
    KernelLog,
    name_ranks,
    normal_bus_id,
    parse_line,
    parse_records,
    read_records,
)
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.devices import KernelEvent, NodeFacts
from hangwatch.sources.discovery.rank_processes import RankProcess

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "kernel" / "oom_kill.kmsg"
#: The forms of NVIDIA's "XID Errors" (r570) and "Fabric Manager" guide, and what reports of users show of them.
XIDS = {
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.": (79, "0000:3b:00", 1234),
    "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": (79, "0000:05:00", None),
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.": (79, "0000:01:00", None),
    "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault": (31, "0000:00:06", 79749),
    "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 13": (149, "0018:01:00", None),
}  # fmt: skip


def records(path: Path) -> list[bytes]:
    """A capture of /dev/kmsg as its reads came: a record, with the lines that begin with a blank."""
    found: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.startswith(b" "):
            found[-1] += line
        else:
            found.append(line)
    return found


def test_real_kill_for_memory_is_one_event() -> None:
    """The kernel tells of one kill in two lines; it is one event."""
    (event,) = parse_records(records(FIXTURE), offset_ns=10**18)
    assert (event.kind, event.pid, event.process) == ("oom", 20562, "python3")
    assert event.at_ns == 10**18 + 12074324250 * 1000


def test_kill_of_the_whole_machine_is_one_too() -> None:
    """Where the machine itself is out of memory, and not a cgroup."""
    line = (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,"
        "task=py (x),pid=7,uid=0"
    )
    event = parse_line(line, 1)
    assert event is not None
    assert (event.pid, event.process) == (7, "py (x)")


@pytest.mark.parametrize("line", XIDS)
def test_gpu_errors_in_all_their_forms(line: str) -> None:
    """Code, GPU and process of an Xid line, whichever of the driver's forms it has."""
    event = parse_line(line, 1)
    assert event is not None
    assert (event.kind, event.code, event.bus_id, event.pid) == ("xid", *XIDS[line])


def test_switch_errors_are_distinguished() -> None:
    """An NVSwitch's error is no GPU's."""
    event = parse_line("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Fatal, Link 46 egress sequence ID error", 1)
    assert event is not None
    assert (event.kind, event.code, event.bus_id) == ("sxid", 12020, "0000:c1:00")


def test_escapes_of_the_device_are_undone() -> None:
    """``/dev/kmsg`` writes what is not printable as an escape."""
    (event,) = parse_records([b"3,1,5,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a\\x09b, gone\n"], 0)
    assert event.text.endswith("name=a\tb, gone")


def test_bus_ids_of_driver_and_kernel_are_one() -> None:
    """NVML writes a longer domain and a function behind it."""
    assert normal_bus_id("00000000:3B:00.0") == normal_bus_id("0000:3b:00") == "0000:3b:00"


def test_ranks_are_named_by_pid() -> None:
    """The rank is known where the kernel names its process, and only there."""
    events = (KernelEvent(1, "oom", "a", pid=7), KernelEvent(2, "xid", "b"), KernelEvent(3, "oom", "c", pid=8))
    assert [e.rank for e in name_ranks(events, {7: 3})] == [3, None, None]


@given(st.lists(st.binary(max_size=200)))
def test_whatever_stands_in_the_log_raises_nothing(lines: list[bytes]) -> None:
    """Anybody may write to the kernel's log."""
    assert all(e.kind in {"xid", "sxid", "oom"} for e in parse_records(lines, 0))


@given(st.text(max_size=80))
def test_hostile_lines_raise_nothing(text: str) -> None:
    """Also behind a beginning that we look for."""
    for beginning in ("NVRM: Xid (PCI:", "oom-kill:constraint=", "Killed process ", "nvidia-nvswitch1: SXid (PCI:"):
        parse_line(beginning + text, 0)


def test_refused_is_a_gap_with_its_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not read the log is shown what repairs it."""

    def refuse() -> list[bytes]:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(kernel_log, "read_records", refuse)
    found = KernelLog().read([])
    assert isinstance(found, Gap)
    assert "CAP_SYSLOG" in found.hint


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel's log may not be read here")
def test_the_real_log_is_read_to_its_end() -> None:
    """The device gives one record a read, and says where it ends instead of waiting for more."""
    try:
        found = read_records()
    except PermissionError:
        pytest.skip("kernel.dmesg_restrict is set")
    assert all(b";" in record for record in found)
    facts = KernelLog().read([RankProcess(RankIdentity(0, 1, 0.0), 1, {})])
    assert isinstance(facts, NodeFacts)
    assert facts.looked == ("kernel log",)
