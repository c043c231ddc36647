"""A thousand faults to agent, probe and their surroundings beside real trainings, which must not notice.

Run: ``python benchmarks/faults.py 1000 --seed 1``, as root, with redis-server and a C compiler. Each job is
``tests/jobs/training.py`` on two ranks, started in one of the ``WAYS`` of ``fault_kinds.py``. While it trains, its ``KINDS``
strike, up to three at a time. Each is undone after at most three seconds, and an agent that has ended is started again, as by
systemd. In every second job, and in every second one of each way, a rank hangs in the end, under the last faults. Then all is
undone, the incident has to be there, the hang is resolved, and the job ends by itself. The state directory has a name in no
encoding.

A job is harmed if its exit status, its losses and weights (to the last bit) or its output differ from a run without hangwatch.
An incident is lost if it is not on disk, not closed after the job, or if its receiver was not notified of both.
Prints one JSON object; exits with 1 where something was harmed or lost. ``--jobs N ...`` runs only some jobs: their faults and
the order of these are the seed's, their moments are the machine's.

All of it runs in PID and mount namespaces of its own, so nothing else of the machine is watched, filled or killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "e2e"))

from fault_kinds import ACTS, KINDS, WAYS, WITHOUT_PTRACE, site_of
from monitoring import Webhook, webhook
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.incident import HANG_KINDS, Incident
from support import JOBS, SOURCE_ROOT, Job, JobRunner, find_free_port, wait_for

_APART = "FAULTS_APART"
_PER_JOB = 100
#: So many of them strike while the rank hangs.
_AT_THE_END = 10
_STEPS = 300
_TRAINING = (
    "--steps",
    str(_STEPS),
    "--step-s",
    "0.12",
    "--pause-s",
    "1.5",
    "--pause-at",
    *map(str, range(8, _STEPS, 20)),
)
#: How long whatever has to come is waited for: it bounds a failure and no success.
_LIMIT_S = 900.0
_MOUNTED = {"run": "2m", "state": "32m", "acts": "1m"}
_SETTINGS = """listen = "127.0.0.1:{port}"
stall_after_s = 8
act_after_s = 8
on_hang.action = "{action}"
exchange = "redis://127.0.0.1:{redis}"
receivers.webhook = ["{receiver}/"]
"""
_PYSPY = """#!/bin/sh
case "$(cat {mode})" in
hangs) trap '' TERM; exec sleep 1000 ;;
crashes) kill -SEGV $$ ;;
babbles) exec head -c 3000000 /dev/urandom ;;
esac
exec {real} "$@"
"""


class World:
    """A node: folders that can fill, a clock that jumps, an agent that comes back, a Redis and a receiver."""

    def __init__(self, folder: Path, receiver: Webhook) -> None:
        self.folder, self.receiver, self.jobs, self.luck = folder, receiver, JOBS, random.Random()  # noqa: S311
        self.runner = JobRunner(folder / "jobs")
        for name, size in _MOUNTED.items():
            (folder / name).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder / name], check=True)
        # No settings file can name a path in no encoding, as TOML is UTF-8; the option can.
        self.state, self.acts, self.config = folder / "state" / "st\udcff", folder / "acts", folder / "hangwatch.toml"
        self.port, self.redis_port = find_free_port(), find_free_port()
        self.redis = self.start_redis()
        self.mode, self.pyspy = folder / "mode", folder / "bin" / "py-spy"
        self.pyspy.parent.mkdir()
        self.pyspy.write_text(_PYSPY.format(mode=self.mode, real=Path(sys.executable).parent / "py-spy"))
        self.ahead, library = folder / "ahead", folder / "clock.so"
        self.ahead.write_bytes(bytes(8))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, JOBS.parent / "e2e" / "other_clock.c"], check=True)
        self.clock = {"LD_PRELOAD": str(library), "CLOCK_AHEAD_FILE": str(self.ahead)}
        self.own = {"TMPDIR": str(folder / "run"), "PYTHONPATH": str(SOURCE_ROOT)}
        told = [sys.executable, "-m", "hangwatch", "env", "--json"]
        self.environment: dict[str, str] = json.loads(subprocess.check_output(told, env={**os.environ, **self.own}))
        self.ranks = Path(self.environment["HANGWATCH_RUN_DIR"]) / "ranks"
        self.starts, self.blind, self.ended = 0, False, Counter[str]()

    def configure(self, action: str) -> None:
        """Have the agents that start from now on act in this way on a hang."""
        told = {"port": self.port, "redis": self.redis_port, "receiver": self.receiver.url}
        self.config.write_text(_SETTINGS.format(action=action, **told))

    def sockets(self) -> list[Path]:
        """Those of the probes."""
        return [path for path in sorted(self.ranks.glob("*.*")) if path.suffix in {".server", ".control"}]

    def start_redis(self) -> Job:
        """An exchange with nothing in it."""
        return self.runner.start(["redis-server", "--port", str(self.redis_port), "--save", "", "--bind", "127.0.0.1"])

    def start_agent(self, plainly: bool = False) -> None:
        """Start an agent where none runs: plainly, in a time namespace, or where it may not trace its equals."""
        if self.starts and self.agent.process.poll() is None:
            return
        if self.starts:
            said = self.agent.stderr().splitlines()[-1:] if self.agent.process.returncode > 0 else []
            self.ended[" ".join([str(self.agent.process.returncode), *said])[:120]] += 1
        apart = ("unshare", "--time", "--monotonic", "900000", "--boottime", "900000")
        before = () if plainly or self.luck.random() < 0.7 else self.luck.choice((apart, WITHOUT_PTRACE))
        self.blind = before == WITHOUT_PTRACE
        entry = f"import sys; sys.executable = {str(self.pyspy.with_name('python'))!r}; sys.argv[0] = 'hangwatch'"
        entry += "; from hangwatch.cli.main import main; main()"
        command = [*before, sys.executable, "-c", entry, "agent", "--state-dir", self.state, "--config", self.config]
        self.agent = self.runner.start(command, env={**self.own, **self.clock})
        self.starts += 1

    def heal(self) -> None:
        """Undo whatever a fault may have left, and wait until an agent watches."""
        for name in ("run", "state"):
            subprocess.run(["mount", "-o", "remount,rw", self.folder / name], check=False, capture_output=True)
            (self.folder / name / "fill").unlink(missing_ok=True)
        self.ranks.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.mode.write_text("works")
        self.pyspy.chmod(0o755)
        if self.blind:  # it sees nothing of ranks without a probe, whatever is undone
            self.agent.send(signal.SIGKILL)
            self.agent.wait()

        def watches() -> bool:
            self.start_agent(plainly=True)
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=9.0):
                return True
            return False

        wait_for(watches, _LIMIT_S, "the agent to be back", poll_s=0.3)


@dataclass
class Training:
    """One job, and what was found wrong with it."""

    world: World
    number: int
    hangs: bool
    wrong: list[str] = field(default_factory=list)
    longest_silence_s: float = 0.0

    def __post_init__(self) -> None:
        world = self.world
        self.way = list(WAYS)[self.number % len(WAYS)]
        self.known = set(find_bundles(world.state))
        self.status, self.until = world.folder / f"status{self.number}", world.folder / f"until{self.number}"
        for fifo in (self.until, world.acts / "0", world.acts / "1"):
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo)
        program, where = JOBS / "training.py", None
        if "no encoding" in self.way:
            where = world.folder / f"tr\udce4ning\udcff{self.number}"
            where.mkdir()
            (where / program.name).symlink_to(program)
            program = where / program.name
        before, site = WAYS[self.way]
        env = {**world.environment, **world.clock, "HANGWATCH_JOB": f"job{self.number}", "ACTS": str(world.acts)}
        if site:
            env["PYTHONPATH"] += f"{os.pathsep}{site_of(world, site)}"
            env["INJECTED"] = str(world.folder / "injected")
        end = ("--until", str(self.until)) if self.hangs else ()
        command = torchrun(Path("--no-python"), *before, str(program), *_TRAINING, *end)
        self.job = world.runner.start(["sh", "-c", '"$@"; echo $? > "$0"', self.status, *command], env=env, cwd=where)

    def strike(self, faults: int) -> Counter[str]:
        """Let so many faults strike until the job has trained; return how many there were of each kind."""
        world, luck = self.world, self.world.luck
        kinds = {**KINDS, **(ACTS if "taking orders" in self.way else {})}
        struck, active = Counter[str](), list[tuple[float, str, ExitStack]]()
        written, since_s = 0, time.monotonic()

        def is_over() -> bool:
            nonlocal written, since_s
            now_s = time.monotonic()
            if (size := self.job.stdout_path.stat().st_size) != written:
                if b"step " in self.job.stdout_path.read_bytes()[:written]:
                    self.longest_silence_s = max(self.longest_silence_s, now_s - since_s)
                written, since_s = size, now_s
            for one in [one for one in active if one[0] <= now_s]:
                active.remove(one)
                one[2].close()
                world.start_agent()
            trained = self.status.exists() or (self.hangs and "weights" in self.job.stdout())
            most = faults - (_AT_THE_END if self.hangs and not trained else 0)
            kind = luck.choices(list(kinds), [weight for _, weight in kinds.values()])[0]
            if struck.total() < most and len(active) < 3 and kind not in {name for _, name, _ in active}:
                active.append((now_s + luck.uniform(0.0, 3.0), kind, ExitStack()))
                active[-1][2].enter_context(kinds[kind][0](world))
                struck[kind] += 1
            return trained and struck.total() >= faults and not active

        wait_for(is_over, _LIMIT_S, f"job {self.number} to have trained under {faults} faults", poll_s=0.2)
        return struck

    def check_incident(self) -> None:
        """Note what is lost of the hang: incident, message, end. The hang is resolved meanwhile."""

        def own() -> list[Incident]:
            found = [read_incident(bundle) for bundle in find_bundles(self.world.state) if bundle not in self.known]
            return [one for one in found if one.verdict.kind in HANG_KINDS and 1 in one.verdict.culprit_ranks]

        def sent(status: str) -> bool:
            bodies, ids = [message.body for message in list(self.world.receiver.messages)], {one.id for one in own()}
            return any(body["incident_id"] in ids and body["status"] == status for body in bodies)

        self._expect("incident", lambda: bool(own()))
        self._expect("message", lambda: sent("firing"))
        self.until.write_text("go on")
        self._expect("end", lambda: any(one.ended_at is not None for one in own()))
        self._expect("message of the end", lambda: sent("resolved"))

    def _expect(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            wait_for(condition, _LIMIT_S / 3, what, poll_s=0.5)
        except AssertionError:
            self.wrong.append(f"lost: {what}")

    def check_end(self, undisturbed: str) -> None:
        """Note what differs from a run without hangwatch."""
        wait_for(lambda: self.status.exists() and self.status.read_text(), _LIMIT_S, f"job {self.number} to end")
        if self.status.read_text() != "0\n":
            self.wrong.append(f"exit status {self.status.read_text().strip()}")
        if self.job.stdout() != undisturbed:
            self.wrong.append("other losses, weights or output")
        if "hangwatch" in (said := self.job.stderr()):
            self.wrong.append(f"stderr: {said[-300:]}")


def run(numbers: Sequence[int], seed: int, folder: Path, receiver: Webhook) -> dict[str, object]:
    """Run some jobs with their faults."""
    world, struck, trainings = World(folder, receiver), Counter[str](), list[Training]()
    try:
        plain = world.runner.start(torchrun(JOBS / "training.py", *_TRAINING))
        assert plain.wait(_LIMIT_S) == 0, plain.stderr()
        for number in numbers:
            world.luck.seed(f"{seed}/{number}")
            hangs = (number + number // len(WAYS)) % 2 == 0
            world.configure("report" if hangs else "stop")  # a healthy job would be harmed by a wrong verdict
            world.start_agent()
            training = Training(world, number, hangs)
            trainings.append(training)
            struck += training.strike(_PER_JOB)
            struck[f"ranks started: {training.way}"] += 1
            world.heal()
            if training.hangs:
                training.check_incident()
            training.check_end(plain.stdout())
            print(number, training.way, struck.total(), training.longest_silence_s, training.wrong, file=sys.stderr)
    finally:
        world.runner.end_all()
    incidents = [read_incident(bundle) for bundle in find_bundles(world.state)]
    return {
        "faults": struck.total(), "jobs": len(trainings), "hangs": sum(one.hangs for one in trainings),
        "wrong": {f"{one.number} ({one.way})": one.wrong for one in trainings if one.wrong},
        "longest_silence_s": round(max(one.longest_silence_s for one in trainings), 1),
        "agent_starts": world.starts, "agent_ended": world.ended,
        "incidents": Counter(f"{one.verdict.kind} of {one.verdict.culprit_ranks}" for one in incidents),
        "struck": dict(sorted(struck.items())),
    }  # fmt: skip


def main() -> None:
    """Strike, and say what was harmed or lost."""
    parser = argparse.ArgumentParser(description="Faults to agent, probe and surroundings beside real trainings.")
    parser.add_argument("faults", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, nargs="+", help="only these jobs of the run")
    options = parser.parse_args()
    if _APART not in os.environ:
        apart = (
            "unshare",
            "--pid",
            "--mount",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            '"$@"; exit $?',
            "sh",
        )
        os.execvpe("unshare", [*apart, sys.executable, *sys.argv], {**os.environ, _APART: "1"})  # noqa: S606
    numbers = options.jobs or range(-(-options.faults // _PER_JOB))
    with tempfile.TemporaryDirectory(prefix="faults-") as name, webhook() as receiver:
        try:
            result = run(numbers, options.seed, Path(name), receiver)
        finally:
            for mounted in _MOUNTED:
                subprocess.run(["umount", "--lazy", Path(name) / mounted], check=False)
    print(json.dumps(result))
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
