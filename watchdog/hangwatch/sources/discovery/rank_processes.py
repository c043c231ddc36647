"""A rank's process as the sources of its node need it: its environment's variables for NCCL and GPUs, and its own pid.

May import hangwatch.model, its own parts and the standard library. All of it is from ``/proc``; the process is not
touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from hangwatch.model.capture import RankIdentity
from hangwatch.sources.discovery.rank_environment import pick_variables
from hangwatch.sources.proc.files import is_same_start, parse_inner_pid, read_small, read_stat, read_whole

#: Variables of NCCL 2.30 (``src/ras``), of torch 2.4 to 2.13 (``ProcessGroupNCCL.hpp``, ``FlightRecorder.cpp``,
#: ``elastic/control_plane.py``) and of the CUDA runtime.
_NAMES = frozenset(
    {
        "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
        "TORCH_FR_DUMP_DYNAMIC_FILE_NAME", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_TIMING", "XDG_CACHE_HOME", "HOME",
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK",
    }
)  # fmt: skip
_ENVIRON_LIMIT_BYTES = 4 << 20
_LONGEST_VALUE = 4096
_MAPS_LIMIT_BYTES = 8 << 20
#: The inode of the first pid namespace (``PROC_PID_INIT_INO`` of include/linux/proc_ns.h).
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


class RankProcess(msgspec.Struct, frozen=True):
    """One rank of this node.

    ``namespace_pid``: its pid in its own PID namespace, which differs from ours in a container. ``variables``: the
    few named above, as of the process's start. ``uid``: its user.
    """

    identity: RankIdentity
    namespace_pid: int
    variables: Mapping[str, str]
    uid: int | None = None
    alive: bool = True

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.identity.rank

    @property
    def pid(self) -> int:
        """The pid in the agent's PID namespace."""
        return self.identity.pid


def read_rank_process(identity: RankIdentity) -> RankProcess:
    """Return what ``/proc`` says of a rank now; the identity alone if the process is gone."""
    pid = identity.pid
    stat = read_stat(pid)
    if stat is None or not is_same_start(stat, identity.start_time) or stat.state in {"Z", "X"}:
        return RankProcess(identity, pid, {}, alive=False)
    environ = read_whole(f"/proc/{pid}/environ", _ENVIRON_LIMIT_BYTES) or b""
    status = read_small(f"/proc/{pid}/status", 8192) or b""
    inner, uid = parse_inner_pid(status), parse_uid(status)
    return RankProcess(identity, inner or pid, pick_variables(environ, _NAMES, _LONGEST_VALUE), uid)


def parse_uid(status: bytes) -> int | None:
    """Return the effective user of ``/proc/PID/status``, who owns the files that the process writes."""
    for line in status.splitlines():
        if line.startswith(b"Uid:"):
            fields = line.split()
            return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None
    return None


def uses_nccl(pid: int) -> bool:
    """True if the process has loaded NCCL *and* opened a GPU; some builds of torch always load NCCL."""
    maps = read_whole(f"/proc/{pid}/maps", _MAPS_LIMIT_BYTES) or b""
    return b"/dev/nvidia" in maps and (b"libnccl" in maps or b"libtorch_cuda" in maps)


def in_first_pid_namespace() -> bool:
    """True if our pids are those of the first PID namespace, which the kernel log uses."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE  # noqa: PTH116 - one number of a path of /proc
    except OSError:
        return False
