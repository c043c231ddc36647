"""For how long a process pauses while its stacks are read: by py-spy as always, and by pystack for ``--native-stacks``.

A process that has loaded torch and computes with two threads reads the clock again and again; the largest gap between two
readings while another process reads its stacks is the pause, beside the largest gap of the same time without one (what the
machine does anyway). The ways follow each other in every round.

    python benchmarks/native_stacks.py [--rounds 10]

Prints one line of Markdown for each way: median and largest gap in milliseconds, and for how long the reader ran.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping

from hangwatch.model.capture import Gap
from hangwatch.sources.stacks.native import sample_native
from hangwatch.sources.stacks.samples import sample_stacks

PROGRAM = """
import select, sys, time
import torch
torch.set_num_threads(2)
x = torch.ones(512, 512)
for _ in range(3):
    x @ x
print("ready", flush=True)
largest, last = 0.0, time.perf_counter()
while True:
    now = time.perf_counter()
    largest, last = max(largest, now - last), now
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        print(largest, flush=True)
        largest, last = 0.0, time.perf_counter()
"""


async def _nothing(_pid: int) -> None:
    await asyncio.sleep(0.5)


async def _ordinary(pid: int) -> None:
    _check(await sample_stacks([pid]))


async def _native(pid: int) -> None:
    _check(await sample_native([pid]))


def _check(found: Mapping[int, object]) -> None:
    for result in found.values():
        if isinstance(result, Gap):
            raise SystemExit(str(result))


WAYS: dict[str, Callable[[int], Coroutine[object, object, None]]] = {
    "none": _nothing,
    "py-spy, as always": _ordinary,
    "pystack": _native,
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    gaps: dict[str, list[float]] = {way: [] for way in WAYS}
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, read in WAYS.items():
            process.stdin.write("\n")
            process.stdout.readline()
            began = time.perf_counter()
            asyncio.run(read(process.pid))
            took[way].append(time.perf_counter() - began)
            process.stdin.write("\n")
            gaps[way].append(float(process.stdout.readline()))
    process.stdin.close()
    process.wait()
    for way in WAYS:
        median, most = 1000 * statistics.median(gaps[way]), 1000 * max(gaps[way])
        print(f"| {way} | {median:.1f} ms | {most:.1f} ms | {1000 * statistics.median(took[way]):.0f} ms |")


if __name__ == "__main__":
    main()
