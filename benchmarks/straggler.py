"""Who is late in the production traces that ByteDance published, by the analysis that hangwatch uses for flight records.

Usage: python -m benchmarks.straggler TRACE...

TRACE: a parquet file of github.com/ByteDance-Seed/StragglerAnalysis (readme at 8efcd7f): a row for each operation of a worker,
with ``dp_rank``, ``stage``, ``rank``, ``step``, ``optype``, ``start_ts`` (s since the beginning of the step), ``duration``,
``seq_id``. The steps are a sample; here each begins when the one before it has ended. Operations between workers become calls;
what else a worker does is its own time before the next call. Time without any operation is left out, as ByteDance's simulator
does (``launch_delay``): such a gap may be a wait for another worker that the trace does not show.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from statistics import mean

from pyarrow import parquet

from hangwatch.slow.arrival import find_late
from hangwatch.slow.timeline import Call, Timeline

#: Collectives between the replicas of a stage, and between stages of a replica (the embedding's only first and last).
REPLICAS = {"grads-reduce-scatter", "params-all-gather", "separate-grads-all-reduce"}
STAGES = {"optimizer-clip-main-grad", "embedding-grads-all-reduce"}
#: What is worth blame: this part of all that could be saved. Else it is imbalance.
MOST = 0.5
#: How far recorded times of consecutive operations may overlap (``EPS`` in their ``dependency_model.py``).
CLOSE_S = 5e-4


class Trace:
    """A trace as calls. ``work``: kind and seconds of the work before each call, by rank and place."""

    def __init__(self, path: str) -> None:
        rows = parquet.read_table(path).to_pylist()
        self.worker = {row["rank"]: (row["dp_rank"], row["stage"]) for row in rows}
        self.rank = {worker: rank for rank, worker in self.worker.items()}
        self.stages = 1 + max(stage for _, stage in self.rank)
        self.calls: dict[int, list[Call]] = defaultdict(list)
        self.work: dict[int, list[list[tuple[str, float]]]] = defaultdict(list)
        self._members: dict[tuple[object, ...], set[int]] = defaultdict(set)
        steps = defaultdict(list)
        for row in rows:
            steps[row["step"]].append(row)
            if (key := self._operation(row)) is not None:
                self._members[row["step"], key].add(row["rank"])
        self._pending: dict[int, list[tuple[str, float]]] = defaultdict(list)
        began = 0.0
        for step, of_step in sorted(steps.items()):
            self._add(step, of_step, began - min(row["start_ts"] for row in of_step))
            began += max(row["start_ts"] + row["duration"] for row in of_step) - min(r["start_ts"] for r in of_step)

    def _operation(self, row: dict) -> tuple[object, ...] | None:
        """Return what is equal for all workers that take part in an operation of a step; None for a worker's own work."""
        kind, dp, stage = row["optype"], row["dp_rank"], row["stage"]
        if kind in REPLICAS:
            return kind, "stage", stage, row["seq_id"]
        if kind in STAGES:
            return kind, "replica", dp, row["seq_id"]
        way, _, side = kind.partition("-")
        if side not in {"send", "recv"}:
            return None
        ahead = 1 if way == "forward" else -1
        sender = stage if side == "send" else (stage - ahead) % self.stages
        return way, "replica", dp, sender, row["seq_id"]

    def _add(self, step: int, rows: list[dict], offset_s: float) -> None:
        ended = dict.fromkeys(self.worker, 0.0)
        for row in sorted(rows, key=lambda one: (one["start_ts"], one["duration"])):
            rank, key = row["rank"], self._operation(row)
            members = tuple(sorted(self._members.get((step, key), ())))
            if key is None or len(members) < 2:
                self._pending[rank].append((row["optype"], row["duration"]))
                continue
            start, end = row["start_ts"], row["start_ts"] + row["duration"]
            if start < ended[rank] < start + CLOSE_S:
                start = ended[rank]
            ended[rank] = end = max(start, end)
            at, left = round((offset_s + start) * 1e9), round((offset_s + end) * 1e9)
            work = self._pending.pop(rank, [])
            took = round(sum(took for _, took in work) * 1e9)
            p2p = row["optype"].endswith(("send", "recv"))
            number = step * 10**6 + row["seq_id"]
            self.calls[rank].append(Call(key[:-1], number, members, row["optype"], at, left, took, p2p))
            self.work[rank].append(work)


def report(path: str) -> str:
    """Return who or what makes the job of a trace slow, in words."""
    trace = Trace(path)
    timeline = Timeline(trace.calls)
    took: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rank, works in trace.work.items():
        for kind, one in (item for work in works for item in work):
            took[kind][trace.worker[rank][1]].append(one * 1e9)

    def usual(ranks: list[int], without: int | None = None) -> dict[int, dict[int, float]]:
        """Return own times of these ranks if each kind of work took its mean, without what a stage did."""
        means = {
            kind: mean([one for stage, ones in by.items() if stage != without for one in ones] or by[without])
            for kind, by in took.items()
        }
        return {r: {at: sum(means[k] for k, _ in work) for at, work in enumerate(trace.work[r])} for r in ranks}

    everything = timeline.gain(usual(list(trace.calls)))
    lines = [
        f"{path}: slowdown {1 / (1 - everything):.2f}, against a job in which work of a kind always takes its mean"
    ]
    finding = find_late(trace.calls)
    if finding is not None and finding.rank is not None:
        dp, stage = trace.worker[finding.rank]
        lines.append(
            f"  one worker: data-parallel rank {dp}, stage {stage} (rank {finding.rank}), {finding.late_ns / 1e9:.2f} s a step "
            f"in {finding.steps} of {finding.of_steps} steps; without it {finding.lost:.1%} less time "
            f"({finding.faster:.1%} faster)"
        )
        return "\n".join(lines)
    gains = {}
    for stage in range(trace.stages):
        gains[stage] = timeline.gain(usual([r for r in trace.calls if trace.worker[r][1] == stage], without=stage))
    worst = max(gains, key=lambda stage: gains[stage])
    if trace.stages > 1 and gains[worst] >= MOST * everything:
        lines.append(
            f"  imbalance, no machine: stage {worst}; as fast as the others {1 / (1 - gains[worst]) - 1:.1%} faster"
        )
    else:
        lines.append("  imbalance, no machine: no single worker and no single stage")
    return "\n".join(lines)


if __name__ == "__main__":
    for trace in sys.argv[1:]:
        print(report(trace))
