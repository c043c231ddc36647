"""Reading a large job's dumps, side by side with torch's own analyzer: ``postmortem.py [RANKS] [ENTRIES] [--rounds N]``.

In turn, on the same files: ``hangwatch diagnose``, ``torchfrtrace``, and a program that does no more than unpickle them, on one
core and on all of them (as hangwatch does).
Time is that of the whole command, CPU time that of it and its children, memory the sum over them of what each has for its own or
shares (PSS), seen every 20 ms. What counts are the ratios, within a round; beside other work on the machine, those of CPU time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from dumps import write_dumps

_UNPICKLE = """
import multiprocessing, os, pathlib, pickle, sys
def load(path):
    with path.open("rb") as file:
        pickle.load(file)
paths = list(pathlib.Path(sys.argv[1]).iterdir())
if sys.argv[2] == "one":
    for path in paths:
        load(path)
else:
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        pool.map(load, paths)
"""
_BIN = Path(sys.executable).parent


def measure(command: list[str]) -> tuple[float, float, float]:
    """Seconds, MB and CPU seconds of a command with its children."""
    began, cpu = time.perf_counter(), _children_cpu_s()
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _proportional_bytes(process))
        time.sleep(0.02)
    return time.perf_counter() - began, peak / 1e6, _children_cpu_s() - cpu


def _children_cpu_s() -> float:
    """CPU seconds of all processes below this one that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _proportional_bytes(process: psutil.Process) -> int:
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            text = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    except (OSError, psutil.Error, StopIteration):
        return total
    return total


def main() -> None:
    """Write the dumps, run all three in turn, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", nargs="?", type=int, default=256)
    parser.add_argument("entries", nargs="?", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hangwatch-dumps-") as folder:
        culprit = write_dumps(Path(folder), options.ranks, options.entries)
        print(f"{options.ranks} ranks x {options.entries} entries, rank {culprit} has stopped")
        commands = {
            "hangwatch": [str(_BIN / "hangwatch"), "diagnose", folder],
            "torchfrtrace": [str(_BIN / "torchfrtrace"), folder],
            "unpickling, one core": [sys.executable, "-c", _UNPICKLE, folder, "one"],
            "unpickling, all cores": [sys.executable, "-c", _UNPICKLE, folder, "all"],
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                found[name].append(measure(command))
    for name, runs in found.items():
        medians = [statistics.median(column) for column in zip(*runs, strict=True)]
        rounds = zip(found["hangwatch"], runs, strict=True)
        pairs = [[ours / theirs for ours, theirs in zip(*both, strict=True)] for both in rounds]
        time_, memory, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"{name:22} {medians[0]:8.2f} s {medians[2]:8.2f} s of CPU {medians[1]:8.0f} MB   "
            f"hangwatch / {name}: time {time_:.3f}, CPU {cpu:.3f}, memory {memory:.3f}"
        )


if __name__ == "__main__":
    main()
