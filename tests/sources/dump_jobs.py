"""Dumps of small NCCL jobs, built as torch writes them; what they are built from is named where they are built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: 2025-09-23, a second after which the last operation was enqueued.
BEGAN_NS = 1_758_610_500_000_000_000


def entry(record_id: int, name: str, seq: int, **changes: Any) -> dict[str, Any]:
    """One entry as ``FlightRecorderDetail.hpp`` (torch 2.9, dump version 2.9, NCCL) inserts it; ``getCollectiveTrace``."""
    p2p = name.startswith(("send", "recv"))
    fields: dict[str, Any] = {
        "record_id": record_id, "pg_id": 0, "process_group": ("0", "default_pg"), "thread_name": "python", "thread_id": "1",
        "collective_seq_id": 0 if p2p else seq, "p2p_seq_id": seq if p2p else 0, "op_id": record_id + 1,
        "profiling_name": f"nccl:{name}", "time_created_ns": BEGAN_NS + record_id * 1_000_000, "input_sizes": [[8]],
        "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"], "state": "completed",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600000,
        "is_p2p": p2p,
    }  # fmt: skip
    return fields | changes


def dump(
    entries: Iterable[Mapping[str, Any]], groups: Mapping[str, tuple[str, list[int]]], version: str = "2.9"
) -> dict[str, Any]:
    """A rank's dump. ``groups``: description and members by name, in order of the rank's own ids, from 0 on.

    Version 2.0 (``TraceUtils.h``, torch 2.4) had no status, 2.10 calls the library's version ``comm_lib_version``.
    """
    entries = list(entries)
    made: dict[str, Any] = {
        "version": version,
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in groups.items()
        },
        "entries": entries,
    }
    if version != "2.0":
        made["pg_status"] = {str(i): _status(entries, name) for i, name in enumerate(groups)}
        made["comm_lib_version" if version == "2.10" else "nccl_version"] = "2.27.3"
    return made


def _status(entries: Iterable[Mapping[str, Any]], name: str) -> dict[str, int]:
    """The last numbers of a group, point-to-point ones among them, as ``ProcessGroupNCCL`` keeps them."""
    own = [e for e in entries if e["process_group"][0] == name]
    seqs = [(max(e["collective_seq_id"], e["p2p_seq_id"]) if e["is_p2p"] else e["collective_seq_id"], e) for e in own]
    return {
        "last_enqueued_collective": max((seq for seq, _ in seqs), default=-1),
        "last_started_collective": -1,
        "last_completed_collective": max((seq for seq, e in seqs if e["state"] == "completed"), default=-1),
    }


def world(size: int) -> dict[str, tuple[str, list[int]]]:
    """The default group alone."""
    return {"0": ("default_pg", list(range(size)))}


def steps(done: int, enqueued: int | None = None, *, op: str = "all_reduce", first: int = 1) -> list[dict[str, Any]]:
    """Collectives of the default group: completed up to ``done``, then in flight up to ``enqueued``."""
    last = done if enqueued is None else enqueued
    return [
        entry(seq - 1, op, seq, state="completed" if seq <= done else "scheduled") for seq in range(first, last + 1)
    ]


def straggling(size: int, culprit: int, version: str = "2.9") -> list[dict[str, Any]]:
    """All ranks are in number 6 but one, which has not come beyond 5."""
    return [dump(steps(5, 5 if rank == culprit else 6), world(size), version) for rank in range(size)]
