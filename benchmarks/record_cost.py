"""What it costs a rank that the agent reads its flight record: ``python benchmarks/record_cost.py [READINGS]``.

One rank of Gloo fills its record with 2,000 operations and goes on with them; torch's worker server answers from a thread of its
own, as with the probe. CPU time: what the process needs more with readings than in as much time without, by its own count. Pause:
the longest operation with and without readings. Prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hangwatch.probe.server import ask_server

_PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
from hangwatch.probe.server import start_server
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(16)
for _ in range(2000):
    dist.all_reduce(x)
start_server(torch._C._distributed_c10d, torch, sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    longest, total, count, until, before = 0.0, 0.0, 0, time.monotonic() + float(line), time.process_time()
    while time.monotonic() < until:
        began = time.monotonic()
        dist.all_reduce(x)
        took = time.monotonic() - began
        longest, total = max(longest, took), total + took
        time.sleep(0.001)
        count += 1
    print(time.process_time() - before, longest, total / count, flush=True)
"""


def main(readings: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "server")
        rank = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert rank.stdin is not None
        assert rank.stdout is not None
        rank.stdout.readline()
        began, size = time.monotonic(), 0
        for _ in range(readings):
            size = len(ask_server(path, "fr_trace_json", 10.0))
        answer_s = (time.monotonic() - began) / readings
        found = []
        for reads in (False, True):
            seconds = readings * 0.3
            rank.stdin.write(f"{seconds}\n")
            rank.stdin.flush()
            until = time.monotonic() + seconds - 0.2
            done = 0
            while reads and done < readings and time.monotonic() < until:
                ask_server(path, "fr_trace_json", 10.0)
                done += 1
                time.sleep(max(0.0, 0.29 - answer_s))
            cpu_s, longest_s, mean_s = map(float, rank.stdout.readline().split())
            found.append((cpu_s, longest_s, mean_s, done))
        rank.stdin.close()
        rank.wait()
    (alone, without_s, usual_s, _), (both, with_s, mean_s, done) = found
    print(
        json.dumps(
            {
                "bytes": size,
                "answer_ms": round(1000 * answer_s, 1),
                "cpu_ms_of_a_reading": round(1000 * (both - alone) / done, 1),
                "operation_us": {"without": round(1e6 * usual_s, 1), "with": round(1e6 * mean_s, 1)},
                "longest_operation_ms": {"without": round(1000 * without_s, 2), "with": round(1000 * with_s, 2)},
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
