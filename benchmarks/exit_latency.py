"""What the probe costs a rank at its end: from the last statement of the program until the process is gone.

Two Gloo ranks call ``all_reduce`` 400 times. Then rank 1 fails with an exception while rank 0 waits for it in the next call
(``raise``), or both destroy their group and end (``end``). Rank 1 is measured: wall time from a reading of the clock in its
last statement until its parent has reaped it, and the CPU time (the kernel's, of all its threads) that it uses meanwhile.
Runs with and without the probe alternate (ABBA), so that a drift of the machine, and whatever else runs on it, falls on both.
A program that ends with its group may be aborted by Gloo, with the probe or without: such runs are repeated, and counted.

    python benchmarks/exit_latency.py [--pairs 20]

Prints one line of JSON and one row of Markdown per end. Imports nothing of ours; the ranks import torch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "watchdog" / "hangwatch" / "probe" / "site"

RANK = """
import os, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=2)
losses = torch.ones(16)
for _ in range(400):
    dist.all_reduce(losses)
if sys.argv[2] == "end":
    dist.destroy_process_group()
elif rank == 0:
    dist.all_reduce(losses)
with open(sys.argv[3], "w") as file:
    file.write(f"{time.monotonic_ns()} {time.process_time_ns()}")
if sys.argv[2] == "raise":
    raise ValueError("no such shard")
"""


def measure(probed: bool, end: str) -> tuple[float, float] | None:
    """The wall and the CPU time, in milliseconds, that rank 1 took to end; None if Gloo has aborted it."""
    with tempfile.TemporaryDirectory(prefix="hw") as directory:
        (Path(directory) / "ranks").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGWATCH_")}
        environment |= {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
        if probed:
            environment |= {"HANGWATCH_RUN_DIR": directory, "PYTHONPATH": str(SITE)}
        other, measured = (
            subprocess.Popen(
                [sys.executable, "-c", RANK, f"file://{directory}/meet", end, f"{directory}/{rank}"],
                env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stderr=subprocess.DEVNULL,
            )
            for rank in (0, 1)
        )
        _, status, usage = os.wait4(measured.pid, 0)
        gone_ns = time.monotonic_ns()
        measured.returncode = os.waitstatus_to_exitcode(status)
        other.wait()
        if measured.returncode == -signal.SIGABRT:
            return None
        if measured.returncode != (end == "raise"):
            raise SystemExit(f"rank 1 ended with status {measured.returncode}")
        if probed and not (Path(directory) / "ranks" / f"{measured.pid}.left").exists():
            raise SystemExit("the probe left nothing")
        began_ns, used_ns = map(int, (Path(directory) / "1").read_text().split())
        return (gone_ns - began_ns) / 1e6, 1e3 * (usage.ru_utime + usage.ru_stime) - used_ns / 1e6


def main() -> None:
    """Run, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=20, help="runs with and without the probe, of each end")
    options = parser.parse_args()
    runs: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    aborted = {True: 0, False: 0}
    for pair in range(options.pairs):
        for end in ("raise", "end"):
            for probed in (True, False) if pair % 2 else (False, True):
                while (taken := measure(probed, end)) is None:
                    aborted[probed] += 1
                runs.setdefault((end, probed), []).append(taken)
    sys.stdout.write(f"aborted by Gloo: {aborted[True]} with the probe, {aborted[False]} without\n")
    for end in ("raise", "end"):
        result: dict[str, object] = {"end": end, "pairs": options.pairs}
        row = [end]
        for place, what in enumerate(("wall", "cpu")):
            with_ms, without_ms = ([run[place] for run in runs[end, probed]] for probed in (True, False))
            ratios = [one / plain for one, plain in zip(with_ms, without_ms, strict=True)]
            quarters = statistics.quantiles(ratios, n=4)
            result[what] = {
                "with_ms": round(statistics.median(with_ms), 1),
                "without_ms": round(statistics.median(without_ms), 1),
                "ratio_median": round(quarters[1], 2),
                "ratio_quartiles": [round(quarters[0], 2), round(quarters[2], 2)],
            }
            row += [
                f"{statistics.median(without_ms):.0f} ms, {statistics.median(with_ms):.0f} ms",
                f"{quarters[1]:.2f} ({quarters[0]:.2f} to {quarters[2]:.2f})",
            ]
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.write("| " + " | ".join(row) + " |\n")


if __name__ == "__main__":
    main()
