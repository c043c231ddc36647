"""From onset to a confirmed verdict: how long it takes, over a hundred real hangs of several kinds.

Run: ``python benchmarks/latency.py [RUNS] [SCENARIO ...] [--keep FILE]``. Each run is a demo scenario under ``hangwatch run
--on-hang stop`` with the default patience; both times are the incident's own (onset: when the oldest pending operation was
enqueued, by torch's flight recorder). Scenarios take turns, so that what the machine does besides falls on all of them. With
``--keep`` each run is a line in FILE: what is there already is not run again, so a measurement that was interrupted goes on.
Prints one JSON object a scenario, then one for all that are proven, and one for the stalls, which wait for 30 s of patience.
``right``: kind, cause and culprits are those of the scenario.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

import msgspec

from hangwatch.demos import Scenario, find_scenario
from hangwatch.outputs.bundle.bundle import list_incidents

#: Those whose onset a recorder dates: five that are proven, two that are not.
_DEFAULT = (
    "rank-conditional", "uneven-inputs", "group-order", "checkpoint-on-rank0", "tuple-labels", "early-exit", "stopped-rank",
)  # fmt: skip
_LIMIT_S = 240.0


class Run(msgspec.Struct, frozen=True):
    """One hang. ``seconds`` is None where no verdict came."""

    scenario: str
    kind: str
    seconds: float | None
    right: bool


def measure(scenario: Scenario) -> Run:
    """Run a scenario until its hang is found."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "hangwatch", "run", "--on-hang", "stop", "--state-dir", state, "--"]
        process = subprocess.Popen(
            [*command, *scenario.command()],
            env={**os.environ, **scenario.full_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        found = list_incidents(Path(state))
    if not found or found[-1].confirmed_at is None:
        return Run(scenario.name, scenario.kind, None, False)
    last = found[-1]
    onset, confirmed = (datetime.fromisoformat(t.replace("Z", "+00:00")) for t in (last.onset_at, last.confirmed_at))
    cause = last.verdict.cause.id if last.verdict.cause is not None else None
    said = (last.verdict.kind, cause, last.verdict.culprit_ranks)
    wanted = (scenario.kind, scenario.cause, scenario.culprits)
    return Run(scenario.name, scenario.kind, (confirmed - onset).total_seconds(), said == wanted)


def summarise(runs: Sequence[Run]) -> dict[str, object]:
    """The distribution of a number of runs."""
    seen = sorted(run.seconds for run in runs if run.seconds is not None)

    def quantile(share: float) -> float:
        return round(seen[min(len(seen) - 1, int(len(seen) * share))], 2)

    return {
        "runs": len(runs),
        "confirmed": len(seen),
        "right": sum(run.right for run in runs),
        "seconds": {
            "min": round(seen[0], 2),
            "median": round(median(seen), 2),
            "p90": quantile(0.9),
            "p95": quantile(0.95),
            "max": round(seen[-1], 2),
        }
        if seen
        else None,
    }


def main() -> None:
    """Measure what is not measured yet, and print."""
    parser = argparse.ArgumentParser(description="How long it takes from a hang to its verdict.")
    parser.add_argument("runs", type=int, nargs="?", default=15)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", default=_DEFAULT)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a line a run, to go on from")
    options = parser.parse_args()
    scenarios = [scenario for name in options.scenarios if (scenario := find_scenario(name)) is not None]
    if len(scenarios) < len(options.scenarios):
        parser.error(f"a scenario is none of `hangwatch demo --list`: {', '.join(options.scenarios)}")
    known = options.keep.read_text().splitlines() if options.keep is not None and options.keep.exists() else []
    runs = [msgspec.json.decode(line, type=Run) for line in known]
    for turn in range(options.runs):
        for scenario in scenarios:
            if sum(run.scenario == scenario.name for run in runs) > turn:
                continue
            runs.append(measure(scenario))
            print(f"{len(runs)} of {options.runs * len(scenarios)}: {runs[-1]}", file=sys.stderr)
            if options.keep is not None:
                with options.keep.open("a") as kept:
                    kept.write(msgspec.json.encode(runs[-1]).decode() + "\n")
    for scenario in scenarios:
        mine = [run for run in runs if run.scenario == scenario.name]
        print(json.dumps({"scenario": scenario.name, "kind": scenario.kind, **summarise(mine)}))
    for title, proven in (("all proven", True), ("all stalls", False)):
        mine = [run for run in runs if (run.kind in {"deadlock", "rank_lost"}) == proven]
        if mine:
            print(json.dumps({"scenario": title, **summarise(mine)}))


if __name__ == "__main__":
    main()
