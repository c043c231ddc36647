"""What the agent costs beside a healthy job: CPU time and resident memory for 8 ranks at one tick a second.

Run: ``python benchmarks/agent_cost.py [SECONDS] [RANKS]``. Starts a real job of 8 ranks (Gloo, CPU) that takes a step each 50 ms
under ``hangwatch run``, leaves out the first 10 s, and reads the agent's own CPU time (its children counted in) and
memory from ``/proc`` at both ends of the time measured. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

_PROGRAM = """
import os, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
x = torch.ones(1024)
while True:
    dist.all_reduce(x); x /= dist.get_world_size()
    time.sleep(0.05)
"""


def _cpu_s(process: psutil.Process) -> float:
    """User and system time of the agent and of helpers it has waited for (py-spy), not of the job it launched."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "steps.py"
        program.write_text(_PROGRAM)
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            str(program),
        ]
        command = [sys.executable, "-m", "hangwatch", "run", "--state-dir", folder, "--", *launch]
        with (Path(folder) / "log").open("wb") as log:
            started = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        try:
            agent = psutil.Process(started.pid)
            deadline = time.monotonic() + 60
            while len([c for c in agent.children(recursive=True) if "RANK" in c.environ()]) < ranks:
                if time.monotonic() > deadline:
                    raise SystemExit("the job did not start")
                time.sleep(0.2)
            time.sleep(10)
            cpu_s, began_s = _cpu_s(agent), time.monotonic()
            peak_bytes = 0
            while time.monotonic() - began_s < seconds:
                time.sleep(1)
                peak_bytes = max(peak_bytes, agent.memory_info().rss)
            used_s, took_s = _cpu_s(agent) - cpu_s, time.monotonic() - began_s
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(timeout=30)
    print(
        json.dumps(
            {
                "ranks": ranks,
                "seconds": round(took_s, 1),
                "agent_cpu_share_of_one_core": round(used_s / took_s, 4),
                "agent_rss_mb": round(peak_bytes / 2**20, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
