"""From the onset of a hang to the first step after the restart, for each launcher.

Run: ``python benchmarks/recovery.py [RUNS] [LAUNCHER ...] [--keep FILE]``. Each run is ``recovering.py`` (a
Trainer with checkpoints whose rank 1 hangs once, at a random step) under ``hangwatch run --on-hang restart`` with the default
patience. Launchers take turns, so that what the machine does besides falls on all of them. ``torchrun-elastic``
restarts its ranks itself (``--max-restarts 1``); for the others hangwatch runs the command again. With ``--keep`` each run is a
line in FILE: what is there already is not run again, so a measurement that was interrupted goes on. Prints one JSON object a
launcher, medians in seconds since the onset; a run that did not recover is counted and has no times.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

import msgspec

from hangwatch.demos import ENVIRONMENT
from hangwatch.model.incident import HANG_KINDS, Incident
from hangwatch.outputs.bundle.bundle import list_incidents

LAUNCHERS = ("torchrun-elastic", "torchrun", "accelerate", "deepspeed")
_LIMIT_S = 600.0
_PROGRAM = Path(__file__).parent / "recovering.py"


class Step(msgspec.Struct, frozen=True):
    """A line of ``steps.jsonl``: process ``pid`` finished a step at ``at_s`` (since the epoch)."""

    step: int
    at_s: float
    pid: int


class Recovery(msgspec.Struct, frozen=True):
    """A hang and what came after it, in seconds since its onset.

    ``hung_after``: the last step before it. ``resumed_step``: the first step after the restart, which repeats what
    came after the checkpoint. ``new_step_s``: when the step after ``hung_after`` was done.
    """

    hung_after: int
    resumed_step: int
    confirmed_s: float
    resumed_s: float
    new_step_s: float


def read_steps(file: Path) -> list[Step]:
    """Return the steps that were recorded, in their order; none without a file. A last line that is cut off is left out."""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except OSError:
        return []
    return [msgspec.json.decode(line, type=Step) for line in lines if line.endswith(b"\n")]


def find_recovery(incident: Incident, steps: Sequence[Step]) -> Recovery | None:
    """Return what the hang cost; None if the job never got beyond the step it hung after."""
    if incident.confirmed_at is None:
        return None
    onset_s, confirmed_s = _seconds(incident.onset_at), _seconds(incident.confirmed_at)
    before = [step for step in steps if step.at_s <= confirmed_s]
    if not before:
        return None
    hung_after = before[-1].step
    after = [step for step in steps if step.at_s > confirmed_s and step.pid != before[-1].pid]
    new = next((step for step in after if step.step > hung_after), None)
    if new is None:
        return None
    return Recovery(
        hung_after=hung_after,
        resumed_step=after[0].step,
        confirmed_s=confirmed_s - onset_s,
        resumed_s=after[0].at_s - onset_s,
        new_step_s=new.at_s - onset_s,
    )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


class Run(msgspec.Struct, frozen=True):
    """One hang. ``recovery`` is None where the job did not go on beyond it, or was found to hang more or less than once."""

    launcher: str
    recovery: Recovery | None


def command_of(launcher: str) -> list[str]:
    """What comes before the program."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2"
    options = {
        "torchrun-elastic": f"{torchrun} --max-restarts 1",
        "torchrun": torchrun,
        # --cpu would start one process only, unless there is MPI. The program asks for the CPU itself.
        "accelerate": "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
        f" --dynamo_backend no --main_process_port {port}",
        "deepspeed": f"-m deepspeed.launcher.runner --num_gpus 2 --master_port {port}",
    }
    return [sys.executable, *options[launcher].split()]


def measure(launcher: str, *options: str) -> Run:
    """Run the job to its end. ``options``: more of ``hangwatch run``."""
    with tempfile.TemporaryDirectory() as folder:
        state, training = Path(folder) / "state", Path(folder) / "training"
        ours = [sys.executable, "-m", "hangwatch", "run", "--on-hang", "restart", "--state-dir", str(state)]
        process = subprocess.Popen(
            [*ours, *options, "--", *command_of(launcher), str(_PROGRAM), "--folder", str(training)],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            status = process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return Run(launcher, None)
        found = [one for one in list_incidents(state) if one.verdict.kind in HANG_KINDS]
        if status != 0 or len(found) != 1:
            return Run(launcher, None)
        return Run(launcher, find_recovery(found[0], read_steps(training / "steps.jsonl")))


def summarise(runs: Sequence[Run]) -> dict[str, object]:
    """The medians of a number of runs, and their extremes."""
    seen = [run.recovery for run in runs if run.recovery is not None]
    resumed = sorted(one.resumed_s for one in seen)
    return {
        "runs": len(runs),
        "recovered": len(seen),
        "seconds": {
            "verdict": round(median(one.confirmed_s for one in seen), 1),
            "first_step": round(median(resumed), 1),
            "first_step_min": round(resumed[0], 1),
            "first_step_max": round(resumed[-1], 1),
            "first_new_step": round(median(one.new_step_s for one in seen), 1),
        }
        if seen
        else None,
    }


def main() -> None:
    """Measure what is not measured yet, and print."""
    parser = argparse.ArgumentParser(description="How long it takes from a hang to the first step after the restart.")
    parser.add_argument("runs", type=int, nargs="?", default=10)
    parser.add_argument("launchers", nargs="*", metavar="LAUNCHER", default=LAUNCHERS, help=", ".join(LAUNCHERS))
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a line a run, to go on from")
    options = parser.parse_args()
    if not set(options.launchers) <= set(LAUNCHERS):
        parser.error(f"a launcher is none of {', '.join(LAUNCHERS)}: {', '.join(options.launchers)}")
    known = options.keep.read_text().splitlines() if options.keep is not None and options.keep.exists() else []
    runs = [msgspec.json.decode(line, type=Run) for line in known]
    for number in range(options.runs):
        for launcher in options.launchers:
            if sum(run.launcher == launcher for run in runs) > number:
                continue
            runs.append(measure(launcher))
            print(f"{len(runs)} of {options.runs * len(options.launchers)}: {runs[-1]}", file=sys.stderr)
            if options.keep is not None:
                with options.keep.open("a") as kept:
                    kept.write(msgspec.json.encode(runs[-1]).decode() + "\n")
    for launcher in options.launchers:
        print(json.dumps({"launcher": launcher, **summarise([run for run in runs if run.launcher == launcher])}))


if __name__ == "__main__":
    main()
