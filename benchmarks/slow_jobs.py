"""How often the right late rank is named in real jobs, a wrong one, or nobody; and what is said of jobs in which nobody is late.

Run: ``python benchmarks/slow_jobs.py SEED SLOW SHAPE...``. Each shape (``slowed.py``) is one torchrun job on Gloo under
``hangwatch run``, in which a healthy phase and one with a slow rank alternate, SLOW of them. The seed decides which rank becomes
slow, why, and by how much of a step, and of which kind the healthy phases are. ``SHAPE:8`` has eight ranks, not four;
``SHAPE:4:REASON`` has that reason only. Prints a line of JSON for each phase, and counts at the end. ``steps`` and ``seconds``
are from the onset to the incident, ``after``: it came when the rank was fast again. The status is 1 if a wrong rank was named,
or one in a healthy phase.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "e2e"))

from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.incident import Incident
from support import JobRunner, wait_for

PROGRAM = Path(__file__).with_name("slowed.py")
#: The kinds of reason that are right, and a part of the line that is; none if any line is.
REASONS: dict[str, tuple[set[str], tuple[str, ...]]] = {
    "compute": ({"compute"}, ("matrix",)),
    "backward": ({"compute"}, ("matrix",)),
    "sleep": ({"sleep"}, ("time.sleep",)),
    "gc": ({"compute"}, ("gc.collect",)),
    "lock": ({"lock"}, ("with _held",)),
    "fsync": ({"unknown", "compute"}, ("os.fsync",)),
    "pipe": ({"input"}, ("child.stdout.read",)),
    "loader": ({"input", "sleep"}, ("time.sleep(self.job.extra_s)",)),
    "stopped": ({"unknown"}, ()),
    "throttled": ({"throttled"}, ()),
}
HEALTHY = ("even", "turns", "long turns", "uneven lengths", "evaluation", "checkpoints", "accumulation", "two slow")
SHARES = (0.1, 0.2, 0.5)
HEALTHY_S, MOST_S, RECORD = 45.0, 150.0, "1000"
_CGROUP = Path("/sys/fs/cgroup/cpu")


class Slowed:
    """One job, and what hangwatch says of it."""

    def __init__(self, runner: JobRunner, folder: Path, shape: str, size: int, seed: int) -> None:
        self.folder, self.size, self.seen = folder, size, 0
        self.phases: list[dict[str, Any]] = [{"from": 0, "kind": "even"}]
        self._write()
        command = torchrun(PROGRAM, shape, str(folder), str(seed), nproc=size)
        arguments = ("run", "--state-dir", folder / "state", "--listen", "127.0.0.1:0", "--")
        self.job = runner.hangwatch(*arguments, *command, env={"TORCH_FR_BUFFER_SIZE": RECORD})
        wait_for(lambda: self.step() > 10 or self._check(), 900.0, "the first steps")
        self.pids = {rank: process.pid for rank, process in self.job.ranks().items()}

    def _write(self) -> None:
        new = self.folder / "new"
        new.write_text(json.dumps(self.phases))
        new.replace(self.folder / "phases")

    def _check(self) -> None:
        assert self.job.process.poll() is None, self.job.stderr()[-3000:]

    def step(self) -> int:
        """Return how far rank 0 has come."""
        with suppress(OSError, ValueError):
            return int((self.folder / "step").read_text())
        return 0

    def begin(self, kind: str, **more: Any) -> tuple[float, int]:
        """Begin a phase. Return when, and in which step, once all ranks are in it."""
        first = self.step() + 10
        self.phases.append({"from": first, "kind": kind, **more})
        self._write()
        wait_for(lambda: self.step() >= first or self._check(), 120.0, "the phase to begin")
        return time.monotonic(), first

    def incidents(self) -> list[Incident]:
        """Return what was reported, oldest first."""
        self._check()
        return [read_incident(path) for path in find_bundles(self.folder / "state")]

    def new(self, within_s: float) -> Incident | None:
        """Return the next incident; None if there is none within that time, and as many steps as a look compares."""
        ends, last = time.monotonic() + within_s, self.step() + 60
        while time.monotonic() < ends or self.step() < last:
            found = self.incidents()
            if len(found) > self.seen:
                self.seen += 1
                return found[self.seen - 1]
            time.sleep(0.5)
        return None


def healthy(job: Slowed, kind: str, rank: int) -> dict[str, Any]:
    """Watch a phase in which nobody is slow, after the end of what was reported before."""
    more = {"kind": "sleep", "ranks": [rank, (rank + 1) % job.size], "share": 0.4} if kind == "two slow" else {}
    began_s, first = job.begin(more.pop("kind", kind), **more)
    ended = None
    if job.seen:
        ends = time.monotonic() + MOST_S
        while (ended := job.incidents()[job.seen - 1].ended_at is not None) is False and time.monotonic() < ends:
            time.sleep(0.5)
    found = job.new(HEALTHY_S - (time.monotonic() - began_s if ended is None else 0))
    told = {"says": found.verdict.summary, "kind": found.verdict.kind} if found is not None else {}
    return {"healthy": kind, "ended": ended, "steps": job.step() - first, "false": found is not None, **told}


@contextmanager
def outside(job: Slowed, reason: str, rank: int, share: float) -> Iterator[None]:
    """Slow a rank down from outside, if that is the reason."""
    pid, over = job.pids[rank], threading.Event()

    def stop_and_go() -> None:
        while not over.wait(0.1):
            os.kill(pid, signal.SIGSTOP)
            over.wait(0.1 * share)
            os.kill(pid, signal.SIGCONT)

    if reason == "stopped":
        thread = threading.Thread(target=stop_and_go)
        thread.start()
        yield
        over.set()
        thread.join()
    elif reason == "throttled":
        own = _CGROUP / f"slowed-{pid}"
        own.mkdir()
        (own / "cpu.cfs_quota_us").write_text("5000")
        (own / "cgroup.procs").write_text(str(pid))
        yield
        (_CGROUP / "cgroup.procs").write_text(str(pid))
        own.rmdir()
    else:
        yield


def slow(job: Slowed, reason: str, rank: int, share: float) -> dict[str, Any]:
    """Slow a rank down, and return what was said of it."""
    with outside(job, reason, rank, share):
        began_s, first = job.begin(reason, ranks=[rank], share=share)
        before, found = job.incidents(), job.new(MOST_S)
        at = job.step()
    after = found is None  # a look may have seen it before its end
    if after:
        job.begin("even")
        found = job.new(HEALTHY_S)
    row: dict[str, Any] = {"reason": reason, "rank": rank, "share": share, "found": found is not None, "after": after}
    if found is None or found.lateness is None:
        return {**row, "steps": at - first, "told": found.verdict.kind if found is not None else None}
    line = found.verdict.divergence.culprit if found.verdict.divergence is not None else None
    source = line.source if line is not None else None
    kinds, lines = REASONS[reason]
    return {
        **row,
        "wrong": found.verdict.culprit_ranks != (rank,),
        "named": found.verdict.culprit_ranks,
        "lost": found.lateness.lost,
        "kind": found.lateness.reason,
        "kind_right": found.lateness.reason in kinds,
        "line": source,
        "line_right": any(part in (source or "") for part in lines or ("",)),
        "seconds": round(time.monotonic() - began_s, 1),
        "steps": at - first,
        "again": bool(before) and before[-1].ended_at is None,
    }


def main(seed: int, phases: int, shapes: list[str]) -> None:
    """Run the jobs, one after the other."""
    counts: Counter[str] = Counter()
    for given in shapes:
        shape, size, *only = (*given.split(":"), "4")[: max(2, given.count(":") + 1)]
        chance = random.Random(f"{seed} {given}")  # noqa: S311
        reasons, kinds = only or [one for one in REASONS if one != "loader" or shape != "pipeline"], list(HEALTHY)
        chance.shuffle(reasons)
        chance.shuffle(kinds)
        with tempfile.TemporaryDirectory(prefix="slow-") as folder:
            runner = JobRunner(Path(folder) / "jobs")
            try:
                job = Slowed(runner, Path(folder), shape, int(size), seed)
                for number in range(phases):
                    rank = chance.randrange(job.size)
                    rows = [healthy(job, kinds[number % len(kinds)], rank)]
                    if not rows[0]["false"]:
                        rows.append(slow(job, reasons[number % len(reasons)], rank, chance.choice(SHARES)))
                    for row in rows:
                        counts.update(
                            name for name in ("found", "wrong", "false", "kind_right", "line_right") if row.get(name)
                        )
                        counts["slow" if "reason" in row else "healthy"] += 1
                        print(json.dumps({"job": given, "load": os.getloadavg()[0], **row}), flush=True)
                job.begin("stop")
                assert job.job.wait(60.0) == 0, job.job.stderr()[-3000:]
            finally:
                runner.end_all()
    print(json.dumps(counts))
    sys.exit(1 if counts["wrong"] or counts["false"] else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
