"""Checks of this machine's permissions and of the jobs that run on it; parts of ``doctor.checks``.

Parsing is pure and separate from reading, so that it can be tested without such a machine.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Collection, Iterable, Mapping

from hangwatch.doctor.check import Check
from hangwatch.model.capture import RankIdentity
from hangwatch.sources.discovery.rank_environment import pick_variables
from hangwatch.sources.flight.recorder import TIMING, records_gloo, times_operations
from hangwatch.sources.node_view import discover_node
from hangwatch.sources.proc.files import read_small, read_whole
from hangwatch.sources.proc.running_code import RunningCode

_CAP_SYS_PTRACE = 19
#: Variables that disable the flight recorder when they are 0 (torch's ``FlightRecorder.hpp``; the second is its name before 2.9).
_RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_STA_UNSYNC, _TIME_ERROR = 0x0040, 5
_PROBE_REPAIR = 'start jobs with `hangwatch run -- CMD`, or after `eval "$(hangwatch env)"`'


def check_ptrace() -> Check:
    """Check the permission to read other processes' memory, by capability or by ptrace_scope."""
    status = (read_small("/proc/self/status", 16384) or b"").decode()
    scope = (read_small("/proc/sys/kernel/yama/ptrace_scope", 16) or b"").decode()
    return judge_ptrace(status, scope, os.geteuid())


def judge_ptrace(status: str, scope: str, uid: int) -> Check:
    """Return the finding on reading other processes' memory.

    ``status``: ``/proc/self/status``; ``scope``: Yama's ptrace_scope, empty if the kernel has no Yama.
    """
    name = "ptrace"
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    if found is not None and int(found[1], 16) >> _CAP_SYS_PTRACE & 1:
        return Check(name, "ok", "CAP_SYS_PTRACE: can read processes of all users and containers")
    if uid == 0:
        repair = "give the container the capability: --cap-add=SYS_PTRACE, or securityContext.capabilities.add"
        return Check(name, "warning", "root without CAP_SYS_PTRACE", repair)
    level = scope.strip() or "0"
    if level == "0":
        return Check(name, "ok", "can read processes of this user; processes of other users need CAP_SYS_PTRACE")
    if level == "3":
        return Check(
            name, "failed", "kernel.yama.ptrace_scope is 3: processes cannot be read", "set it to 0 and reboot"
        )
    return Check(name, "failed", f"kernel.yama.ptrace_scope is {level}", "sudo sysctl -w kernel.yama.ptrace_scope=0")


def check_sampling() -> Check:
    """Check, on this thread, whether the kernel tells in which code a thread runs."""
    name = "running code"
    with RunningCode() as code:
        code.watch([RankIdentity(0, os.getpid(), 0.0)])
        gaps = code.read()[1]
    if gaps:
        return Check(name, "warning", "the kernel does not show which code a rank runs", gaps[0].hint)
    return Check(name, "ok", "the kernel shows which code a rank runs, so a wait for a GPU is distinguished from work")


def check_proc() -> Check:
    """Check whether ``/proc`` shows the processes of other users."""
    return judge_proc((read_whole("/proc/self/mountinfo", 1 << 20) or b"").decode(errors="replace"))


def judge_proc(mounts: str) -> Check:
    """Return the finding on ``/proc``. ``mounts``: ``/proc/self/mountinfo``."""
    options = next((line for line in mounts.splitlines() if re.search(r" /proc .* - proc ", line)), "")
    hidden = re.search(r"hidepid=(\w+)", options)
    if hidden is None or hidden[1] in {"0", "off"}:
        return Check("/proc", "ok", "shows all processes")
    repair = "run the agent as root or with CAP_SYS_PTRACE, or: sudo mount -o remount,hidepid=0 /proc"
    return Check("/proc", "warning", f"hidepid={hidden[1]}: processes of other users are hidden", repair)


def check_clock() -> Check:
    """Check whether NTP synchronizes the clock: times of several nodes are compared."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = ctypes.create_string_buffer(512)  # struct timex has 208 bytes; zeroed, the call changes nothing
    result = libc.adjtimex(state)
    status = ctypes.c_int.from_buffer(state, 40).value
    return judge_clock(result, status)


def judge_clock(result: int, status: int) -> Check:
    """Return the finding on the clock. ``result`` and ``status``: as of adjtimex(2) (64-bit Linux)."""
    if result < 0:
        return Check("clock", "ok", "cannot be checked: permission denied")
    if result == _TIME_ERROR or status & _STA_UNSYNC:
        repair = "sudo timedatectl set-ntp true (or start chrony); in a container, do this on the host"
        return Check(
            "clock", "warning", "not synchronized: start times from different nodes may be in the wrong order", repair
        )
    return Check("clock", "ok", "synchronized")


def check_jobs() -> list[Check]:
    """Check the probe, the flight recorder and the torch version of the ranks on this node."""
    found, reader = discover_node()
    beats, _ = reader.read()
    ranks = {one.pid: one.rank for job in found.jobs for one in job.ranks}
    if not ranks:
        return [Check("jobs", "ok", "no ranks are running on this node")]
    environs = {pid: _recorder_settings(pid) for pid in ranks}
    versions = {pid: beats[pid].torch for pid in ranks if pid in beats}
    on_nccl = {pid for pid in versions if any(group.backend == "nccl" for group in beats[pid].groups)}
    return [
        judge_probe(ranks, beats.keys()),
        judge_recorder(ranks, environs, on_nccl),
        *([judge_torch(versions)] if versions else []),
    ]


def _recorder_settings(pid: int) -> dict[str, str]:
    return pick_variables(read_whole(f"/proc/{pid}/environ", 1 << 20) or b"", (*_RECORDER, TIMING), 32)


def judge_probe(ranks: Mapping[int, int], probed: Iterable[int]) -> Check:
    """Return the finding on the probe. ``ranks``: rank by pid; ``probed``: pids whose probe writes beats."""
    without = sorted(rank for pid, rank in ranks.items() if pid not in set(probed))
    if not without:
        return Check("probe in ranks", "ok", f"loaded in all {len(ranks)} rank{'s' * (len(ranks) != 1)} on this node")
    named = ", ".join(map(str, without[:8])) + (" ..." if len(without) > 8 else "")
    return Check(
        "probe in ranks",
        "warning",
        f"not loaded in rank{'s' * (len(without) != 1)} {named}: hangs are detected from stacks only",
        _PROBE_REPAIR,
    )


def judge_recorder(
    ranks: Mapping[int, int], environs: Mapping[int, Mapping[str, str]], on_nccl: Collection[int] = ()
) -> Check:
    """Return the finding on the flight recorder.

    ``ranks``: rank by pid; ``environs``: by pid, the variables that say what it records. ``on_nccl``: pids that use NCCL.
    """
    off = {
        ranks[pid]: next((n for n in _RECORDER if variables.get(n) == "0"), None) for pid, variables in environs.items()
    }
    named = {rank: name for rank, name in off.items() if name is not None}
    if not named:
        untimed = any(not times_operations(environs[pid]) for pid in on_nccl)
        return Check("flight recorder", "ok", f"enabled (to find late ranks, set {TIMING}=1)" if untimed else "enabled")
    rank, name = min(named.items())
    says = f"disabled in {len(named)} rank{'s' * (len(named) != 1)}, e.g. rank {rank} ({name}=0): no sequence numbers"
    return Check("flight recorder", "warning", says, f"unset {name}, or set it to 2000")


def judge_torch(versions: Mapping[int, str]) -> Check:
    """Return the finding on torch. ``versions``: torch version by pid, as reported by the probe."""
    says = ", ".join(sorted(set(versions.values())))
    if any(records_gloo(text) is False for text in versions.values()):
        says += " (hangs on Gloo are proven from torch 2.10 on)"
    return Check("torch in ranks", "ok", says)
