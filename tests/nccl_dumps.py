"""Flight-recorder dumps in NCCL's form (``FlightRecorderDetail.hpp`` of torch 2.13), for tests that have no GPU.

An operation is ``scheduled`` until its kernel is seen to have begun, which is recorded with TORCH_NCCL_ENABLE_TIMING alone, and
``completed`` when its end is seen. Numbers of the status are those of the last operation, also of a send or receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

GROUPS = {"0": ("default_pg", "[0, 1, 2, 3]")}


def nccl_entry(
    *,
    seq: int,
    op: str = "nccl:all_reduce",
    state: str = "completed",
    record_id: int | None = None,
    sizes: Sequence[Sequence[int]] = ((1024,),),
    dtype: str = "Float",
    group: tuple[str, str] = ("0", "default_pg"),
    pg_id: int = 0,
    p2p: bool = False,
    created_ns: int = 990_000_000_000,
    retired: bool | None = None,
    frames: Sequence[tuple[str, str, int]] = (("train", "/srv/train/train.py", 30),),
) -> dict[str, Any]:
    """One entry."""
    began = state in {"started", "completed"}
    number = record_id if record_id is not None else seq
    return {
        "frames": [{"name": name, "filename": file, "line": line} for name, file, line in frames],
        "record_id": number,
        "pg_id": pg_id,
        "process_group": group,
        "collective_seq_id": 0 if p2p else seq,
        "p2p_seq_id": seq if p2p else 0,
        "op_id": seq,
        "profiling_name": op,
        "time_created_ns": created_ns + number * 1_000_000,
        "input_sizes": [list(shape) for shape in sizes],
        "output_sizes": [list(shape) for shape in sizes],
        "input_dtypes": [dtype] * len(sizes),
        "output_dtypes": [dtype] * len(sizes),
        "state": state,
        "time_discovered_started_ns": created_ns + 1 if began else None,
        "time_discovered_completed_ns": created_ns + 2 if state == "completed" else None,
        "retired": state == "completed" if retired is None else retired,
        "timeout_ms": 600000,
        "is_p2p": p2p,
        "thread_id": "1",
        "thread_name": "MainThread",
    }


def nccl_dump(*entries: dict[str, Any], groups: dict[str, tuple[str, str]] | None = None) -> dict[str, Any]:
    """A dump with these entries, its status and groups."""
    status: dict[str, dict[str, int]] = {}
    for entry in entries:
        seq = max(entry["collective_seq_id"], entry["p2p_seq_id"])
        now = status.setdefault(
            str(entry["pg_id"]),
            {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1},
        )
        now["last_enqueued_collective"] = max(now["last_enqueued_collective"], seq)
        if entry["time_discovered_started_ns"] is not None:
            now["last_started_collective"] = max(now["last_started_collective"], seq)
        if entry["state"] == "completed":
            now["last_completed_collective"] = max(now["last_completed_collective"], seq)
    return {
        "version": "2.10",
        "comm_lib_version": "2.27.5",
        "pg_config": {
            name: {"name": name, "desc": description, "ranks": ranks}
            for name, (description, ranks) in (groups or GROUPS).items()
        },
        "pg_status": status,
        "entries": list(entries),
    }
