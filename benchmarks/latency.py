"""From onset to a confirmed verdict: how long it takes, over repeated real hangs.

Run: ``python benchmarks/latency.py [RUNS] [SCENARIO ...]``. Each run is a demo scenario under ``hangwatch run --on-hang
stop``; both times are the incident's own (onset: when the oldest pending operation was enqueued, by torch's flight
recorder). Prints one JSON object a scenario.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from hangwatch.demos import find_scenario
from hangwatch.outputs.bundle import list_incidents

#: Proven ones whose onset a recorder dates.
_DEFAULT = ("rank-conditional", "uneven-inputs", "group-order", "tuple-labels")


def _latency_s(name: str) -> float | None:
    scenario = find_scenario(name)
    if scenario is None:
        raise SystemExit(f"no scenario named {name}")
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "hangwatch", "run", "--on-hang", "stop", "--state-dir", state, "--"]
        subprocess.run(
            [*command, *scenario.command()],
            env={**os.environ, **scenario.full_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        found = list_incidents(Path(state))
    if not found or found[-1].confirmed_at is None:
        return None
    onset, confirmed = (
        datetime.fromisoformat(t.replace("Z", "+00:00")) for t in (found[-1].onset_at, found[-1].confirmed_at)
    )
    return (confirmed - onset).total_seconds()


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name in sys.argv[2:] or _DEFAULT:
        latencies = [_latency_s(name) for _ in range(runs)]
        seen = sorted(s for s in latencies if s is not None)
        result = {
            "scenario": name,
            "runs": runs,
            "confirmed": len(seen),
            "seconds": {
                "min": round(seen[0], 2),
                "median": round(statistics.median(seen), 2),
                "p90": round(seen[min(len(seen) - 1, int(len(seen) * 0.9))], 2),
                "max": round(seen[-1], 2),
            }
            if seen
            else None,
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
