"""What the probe costs a rank: CPU time of its thread, and all_reduce throughput with and without it.

The probe does nothing when an operation is called: what a call bears is its part of the beats that were written meanwhile.
Two Gloo ranks on this machine, run again and again, with and without the probe in turn (ABBA, so that a drift of the
machine falls on both). Each run measures small (16 floats: latency) and large (256 Ki floats: bandwidth) all_reduce.
The thread's CPU time is the kernel's (``/proc/self/task/TID/schedstat``, nanoseconds) over the measured time.

    python benchmarks/probe_cost.py [--pairs 6] [--seconds 4]

Prints one line of JSON and one of Markdown. Imports nothing of ours; the ranks import torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SITE = Path(__file__).resolve().parents[1] / "watchdog" / "hangwatch" / "probe" / "site"

RANK = """
import json, os, sys, threading, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=sys.argv[1], rank=int(os.environ["RANK"]), world_size=2)
tensors = {"small": torch.ones(16), "large": torch.ones(256 * 1024)}
for tensor in tensors.values():
    for _ in range(100):
        dist.all_reduce(tensor)
probe = [thread.native_id for thread in threading.enumerate() if thread.name == "hangwatch-probe"]

def cpu_ns():
    return int(open(f"/proc/self/task/{probe[0]}/schedstat").read().split()[0]) if probe else 0

def beats():
    return json.load(open(f"{os.environ['HANGWATCH_RUN_DIR']}/ranks/{os.getpid()}.beat"))["counter"] if probe else 0

result = {"calls": 0}
cpu_before, beats_before, wall_before = cpu_ns(), beats(), time.perf_counter()
for name, tensor in tensors.items():
    # As many as fill the time on rank 0, agreed on beforehand: both must make the same number of calls.
    began = time.perf_counter()
    for _ in range(200):
        dist.all_reduce(tensor)
    count = torch.tensor([int(200 * float(sys.argv[2]) / 2 / (time.perf_counter() - began))])
    dist.broadcast(count, 0)
    began = time.perf_counter()
    for _ in range(int(count)):
        dist.all_reduce(tensor)
    result[name] = int(count) / (time.perf_counter() - began)
    result["calls"] += 200 + int(count)
used_ns = cpu_ns() - cpu_before
result["cpu_share"] = used_ns / 1e9 / (time.perf_counter() - wall_before) if probe else None
result["us_per_beat"] = used_ns / 1e3 / max(1, beats() - beats_before) if probe else None
result["ns_per_call"] = used_ns / result["calls"] if probe else None
dist.barrier()
dist.destroy_process_group()
print(json.dumps(result))
"""


def measure(probed: bool, seconds: float) -> list[dict[str, Any]]:
    """One run of two ranks: operations a second by size and, where probed, the probe's share of a core."""
    with tempfile.TemporaryDirectory(prefix="hw") as directory:
        (Path(directory) / "ranks").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGWATCH_")}
        environment |= {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
        if probed:
            environment |= {"HANGWATCH_RUN_DIR": directory, "PYTHONPATH": str(SITE)}
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, f"file://{directory}/meet", str(seconds)],
                env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in (0, 1)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise SystemExit(f"a rank failed with status {[rank.returncode for rank in ranks]}")
        return [json.loads(output) for output in outputs]


def main() -> None:
    """Run, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=6, help="runs with and without the probe")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time of one run")
    options = parser.parse_args()
    runs: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for pair in range(options.pairs):
        for probed in (True, False) if pair % 2 else (False, True):
            ranks = measure(probed, options.seconds)
            runs[probed].append(ranks[0] | {"cpu_share": max(rank["cpu_share"] or 0.0 for rank in ranks)})
    ratios = {
        size: [run[size] / plain[size] for run, plain in zip(runs[True], runs[False], strict=True)]
        for size in ("small", "large")
    }
    shares = [run["cpu_share"] for run in runs[True]]
    result: dict[str, Any] = {
        "pairs": options.pairs,
        "seconds": options.seconds,
        "probe_cpu_share": {"median": statistics.median(shares), "largest": max(shares)},
        "probe_us_per_beat": round(statistics.median(run["us_per_beat"] for run in runs[True]), 1),
        "probe_ns_per_all_reduce": round(statistics.median(run["ns_per_call"] for run in runs[True]), 1),
        "all_reduce": {
            size: {
                "with_per_s": round(statistics.median(run[size] for run in runs[True]), 1),
                "without_per_s": round(statistics.median(run[size] for run in runs[False]), 1),
                "ratio_median": round(statistics.median(ratios[size]), 4),
                "ratio_range": [round(min(ratios[size]), 4), round(max(ratios[size]), 4)],
            }
            for size in ratios
        },
    }
    sys.stdout.write(json.dumps(result) + "\n")
    small, large = result["all_reduce"]["small"], result["all_reduce"]["large"]
    sys.stdout.write(
        f"| probe | thread: {100 * result['probe_cpu_share']['median']:.3f} % of a core "
        f"(largest {100 * max(shares):.3f} %) | all_reduce with / without: small {small['ratio_median']:.3f} "
        f"({small['ratio_range'][0]:.3f} to {small['ratio_range'][1]:.3f}), large {large['ratio_median']:.3f} "
        f"({large['ratio_range'][0]:.3f} to {large['ratio_range'][1]:.3f}) | {options.pairs} pairs |\n"
    )


if __name__ == "__main__":
    main()
