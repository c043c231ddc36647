"""Flight-recorder dumps of a large job, as NCCL ranks write them: for measuring, and readable by torch's own analyzer.

Standard library only. The shape of an entry, its keys and their order are those of torch 2.13
(``FlightRecorderDetail.hpp``, ``getCollectiveTrace``; version 2.10); strings and call-site frames are shared within a file, as
torch's pickler shares them.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TENSOR, PIPELINE = 8, 2
MICROBATCHES, LAYERS = 4, 4
START_NS = 1_795_000_000_000_000_000
STEP_NS = 800_000
_HIDDEN = [2048, 4, 512]
_SHARD, _FULL = [1_048_576], 1_048_576


@dataclass(frozen=True)
class Op:
    """One operation of a rank's program. ``kind``: which group; ``layer``: which call site."""

    kind: str
    name: str
    inputs: list[list[int]]
    outputs: list[list[int]]
    dtype: str
    layer: int


@dataclass(frozen=True)
class Layout:
    """Megatron's order of ranks: tensor parallel ranks are neighbours, then data, then pipeline."""

    world: int

    def __post_init__(self) -> None:
        if self.world % (TENSOR * PIPELINE):
            raise ValueError(f"the number of ranks must be a multiple of {TENSOR * PIPELINE}")

    @property
    def data(self) -> int:
        """The size of a data-parallel group."""
        return self.world // (TENSOR * PIPELINE)

    def stage(self, rank: int) -> int:
        """The pipeline stage of a rank."""
        return rank // (TENSOR * self.data)

    def groups(self, rank: int) -> dict[str, tuple[int, str, range]]:
        """By kind: the group's number, its description and its members."""
        tensor, stage = rank % TENSOR, self.stage(rank)
        first = rank - tensor
        half = TENSOR * self.data
        return {
            "world": (0, "default_pg", range(self.world)),
            "tensor": (1 + rank // TENSOR, "tensor_parallel", range(first, first + TENSOR)),
            "data": (
                1 + self.world // TENSOR + stage * TENSOR + tensor,
                "data_parallel",
                range(stage * half + tensor, (stage + 1) * half, TENSOR),
            ),
            "pipeline": (
                1 + self.world // TENSOR + TENSOR * PIPELINE + rank % half,
                "pipeline_parallel",
                range(rank % half, 2 * half, half),
            ),
        }


def step(stage: int, data: int) -> Iterator[Op]:
    """What a rank of a stage calls in one training step."""
    for backward in (False, True):
        sends = (stage == 0) != backward
        for _ in range(MICROBATCHES):
            there, back = (f"nccl:send {stage}->{1 - stage}", f"nccl:recv {stage}<-{1 - stage}")
            if not sends:
                yield Op("pipeline", back, [_HIDDEN], [_HIDDEN], "BFloat16", 90 + backward)
            for layer in range(LAYERS):
                for part in (0, 1):
                    site = layer * 4 + backward * 2 + part
                    yield Op("tensor", "nccl:all_reduce", [_HIDDEN], [_HIDDEN], "BFloat16", site)
            if sends:
                yield Op("pipeline", there, [_HIDDEN], [_HIDDEN], "BFloat16", 92 + backward)
    shard, full = [_FULL // data], [_FULL // data * data]
    yield Op("data", "nccl:_reduce_scatter_base", [full], [shard], "Float", 100)
    yield Op("world", "nccl:all_reduce", [[1]], [[1]], "Float", 101)
    yield Op("data", "nccl:_all_gather_base", [shard], [full], "BFloat16", 102)


def program(stage: int, data: int, entries: int) -> list[tuple[Op, int]]:
    """The first operations of a rank, each with its number among those of its kind (from 1 on)."""
    counts: dict[str, int] = {}
    found: list[tuple[Op, int]] = []
    steps = iter(lambda: tuple(step(stage, data)), ())
    for op in itertools.islice(itertools.chain.from_iterable(steps), entries):
        counts[op.kind] = counts.get(op.kind, 0) + 1
        found.append((op, counts[op.kind]))
    return found


def enqueued(layout: Layout, programs: list[list[tuple[Op, int]]], culprit: int, before: int) -> list[int]:
    """How many operations each rank has enqueued when ``culprit`` stops with ``before`` of its own still to come.

    A rank enqueues its next operation when the one before has completed, which is when all members have enqueued it.
    """
    groups = [{kind: (n, len(ranks)) for kind, (n, _, ranks) in layout.groups(r).items()} for r in range(layout.world)]
    mine = [programs[layout.stage(r)] for r in range(layout.world)]
    limit = [len(ops) for ops in mine]
    limit[culprit] -= before
    first = max(0, limit[culprit] - before)  # so far, all of them have come
    place = [first] * layout.world
    joined: Counter[tuple[int, int]] = Counter()
    for rank in range(layout.world):
        last = {op.kind: number for op, number in mine[rank][:first]}
        joined.update((groups[rank][kind][0], number) for kind, number in last.items())
    moved = True
    while moved:
        moved = False
        for rank in range(layout.world):
            while place[rank] < limit[rank]:
                if place[rank]:
                    op, number = mine[rank][place[rank] - 1]
                    group, members = groups[rank][op.kind]
                    if joined[group, number] < members:
                        break
                op, number = mine[rank][place[rank]]
                joined[groups[rank][op.kind][0], number] += 1
                place[rank] += 1
                moved = True
    return place


def frames(depth: int) -> dict[int, list[dict[str, object]]]:
    """A call site of so many frames, deepest first, for each place the program calls from; what is above is shared."""
    above = [
        {"name": f"forward_{i}", "filename": f"/opt/megatron/core/module_{i % 7}.py", "line": 100 + i}
        for i in range(depth - 3)
    ]
    found = {}
    for site in (*range(LAYERS * 4), *range(90, 94), *range(100, 103)):
        found[site] = [
            {"name": "wrapper", "filename": "/opt/venv/site-packages/torch/distributed/c10d_logger.py", "line": 83},
            {"name": f"reduce_{site}", "filename": "/opt/megatron/core/tensor_parallel/mappings.py", "line": 20 + site},
            {"name": f"layer_{site}", "filename": "/opt/megatron/core/transformer/layer.py", "line": 300 + site},
            *above,
        ]
    return found


def dump(layout: Layout, rank: int, ops: list[tuple[Op, int]], done: int, depth: int) -> dict[str, object]:
    """What one rank's recorder writes after ``ops``, of which the first ``done`` have completed."""
    groups = layout.groups(rank)
    sites = frames(depth) if depth else {}
    ids = {kind: i for i, kind in enumerate(groups)}
    names = {kind: (str(number), description) for kind, (number, description, _) in groups.items()}
    entries, numbers, sends = [], dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
    for index, (op, _) in enumerate(ops):
        p2p = op.kind == "pipeline"
        counter = sends if p2p else numbers
        counter[op.kind] += 1
        completed = index < done
        created = START_NS + index * STEP_NS + rank * 1_000
        entry: dict[str, object] = {
            "record_id": index, "pg_id": ids[op.kind], "process_group": names[op.kind],
            "thread_name": "pt_main_thread", "thread_id": "139872",
            "collective_seq_id": numbers[op.kind], "p2p_seq_id": sends[op.kind], "op_id": index + 1,
            "profiling_name": op.name, "time_created_ns": created, "duration_ms": None,
            "input_sizes": [list(size) for size in op.inputs], "input_dtypes": [op.dtype],
            "output_sizes": [list(size) for size in op.outputs], "output_dtypes": [op.dtype],
            "state": "completed" if completed else "started",
            "time_discovered_started_ns": created + 20_000,
            "time_discovered_completed_ns": created + 400_000 if completed else None,
            "retired": completed, "timeout_ms": 600_000, "is_p2p": p2p,
        }  # fmt: skip
        if depth:
            entry["frames"] = list(sites[op.layer])
        entries.append(entry)
    status = {
        ids[kind]: {
            "last_enqueued_collective": numbers[kind] + sends[kind],
            "last_started_collective": numbers[kind] + sends[kind],
            "last_completed_collective": numbers[kind] + sends[kind] - (done < len(ops) and ops[-1][0].kind == kind),
        }
        for kind in groups
    }
    config = {
        str(number): {"name": str(number), "desc": description, "ranks": str(list(members))}
        for number, description, members in groups.values()
    }
    return {
        "version": "2.10", "comm_lib_version": "2.27.7", "pg_config": config, "pg_status": status, "entries": entries,
        "nccl_comm_state": {},
    }  # fmt: skip


def write_dumps(folder: Path, ranks: int, entries: int, *, depth: int = 24, culprit: int | None = None) -> int:
    """A folder of dumps of a job in which one rank stops and nobody gets any further. Returns that rank."""
    layout = Layout(ranks)
    culprit = ranks // 3 if culprit is None else culprit
    programs = [program(stage, layout.data, entries) for stage in range(PIPELINE)]
    counts = enqueued(layout, programs, culprit, 40)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        ops = programs[layout.stage(rank)][: counts[rank]]
        done = counts[rank] - (rank != culprit)
        with (folder / f"nccl_trace_rank_{rank}").open("wb") as file:
            pickle.dump(dump(layout, rank, ops, done, depth), file, protocol=2)
    return culprit
