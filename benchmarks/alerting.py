"""From the onset of a real hang to those who are notified, through the real Prometheus and Alertmanager as they are shipped.

Run: ``python benchmarks/alerting.py [RUNS]``. Each run is a job of three ranks under ``hangwatch run``, scraped and judged each
second, whose alert is delivered to a webhook; then the job is ended, and the end is waited for. Onset and verdict are the
incident's own times, the others those at which the webhook was called. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "e2e"))

from monitoring import start_alertmanager, start_prometheus, webhook
from watched_runs import find_bundles, read_incident

from hangwatch.demos import find_scenario
from support import JobRunner, find_free_port, wait_for

_LIMIT_S = 300.0


def _unix_s(rfc3339: str | None) -> float:
    if rfc3339 is None:
        raise SystemExit("the incident lacks a time")
    return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp()


def run_once(folder: Path) -> dict[str, float]:
    """Seconds from onset to verdict, from onset to the webhook, and from the job's end to the webhook."""
    scenario = find_scenario("rank-conditional")
    if scenario is None:
        raise SystemExit("the demo is gone")
    runner = JobRunner(folder / "jobs")
    try:
        with webhook() as receiver:
            # As shipped in all that counts here; only changes of a group are sent sooner than in 5 min.
            alertmanager = start_alertmanager(runner, folder / "alertmanager", f"{receiver.url}/rules")
            agent = f"127.0.0.1:{find_free_port()}"
            start_prometheus(runner, folder / "prometheus", agent, alertmanager)
            options = ("--state-dir", folder / "state", "--listen", agent)
            job = runner.hangwatch("run", *options, "--", *scenario.command(), env=scenario.full_environment())
            (fired, _), *_ = wait_for(
                lambda: receiver.alerts("/rules/hangs", "firing"), _LIMIT_S, "the alert", poll_s=0.05
            )
            (bundle,) = find_bundles(folder / "state")
            job.send(signal.SIGTERM)
            (over, _), *_ = wait_for(
                lambda: receiver.alerts("/rules/hangs", "resolved"), _LIMIT_S, "the end", poll_s=0.05
            )
            incident = read_incident(bundle)
            onset_s = _unix_s(incident.onset_at)
            runner.end_all()
            return {
                "onset_to_verdict": _unix_s(incident.confirmed_at) - onset_s,
                "onset_to_webhook": fired.at_unix_s - onset_s,
                "end_to_webhook": over.at_unix_s - _unix_s(incident.ended_at),
            }
    finally:
        runner.end_all()


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found = []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            found.append(run_once(Path(folder)))
        print(f"run {number + 1} of {runs}: {found[-1]}", file=sys.stderr)
    seconds = {
        name: {
            "min": round(min(values), 1),
            "median": round(statistics.median(values), 1),
            "max": round(max(values), 1),
        }
        for name in found[0]
        for values in [[run[name] for run in found]]
    }
    print(json.dumps({"runs": runs, "seconds": seconds, "load": round(os.getloadavg()[0], 1)}, indent=2))


if __name__ == "__main__":
    main()
