"""Serving engines that hang behind health checks that say 200, and engines that only look so: a stand-in for vLLM, watched."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, find_bundles, read_incident, read_url

from hangwatch.model.incident import HANG_KINDS, Verdict
from support import JOBS, Job, JobRunner, find_free_port, wait_for

#: How long an engine may take until it serves, and until it is found.
_START_S = 240.0
#: How often an agent or an engine is asked over HTTP: more often, and they would do little else.
_POLL_S = 0.2


@dataclass
class Engine:
    """A stand-in under watch: ``url`` is its own, ``agent`` its agent's."""

    job: Job
    url: str
    agent: str
    state: Path

    def ask(self, prompt: int, tokens: int) -> int:
        """The status of one request."""
        data = json.dumps({"prompt": prompt, "max_tokens": tokens}).encode()
        try:
            request = urllib.request.Request(f"{self.url}/v1/completions", data)  # noqa: S310  # our own
            with urllib.request.urlopen(request, timeout=900) as answer:  # noqa: S310  # our own
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def ask_in_vain(self, requests: int) -> None:
        """Requests that nobody waits for here."""

        def ask() -> None:
            try:
                self.ask(100, 50)
            except OSError:
                return  # the engine was ended before

        for _ in range(requests):
            threading.Thread(target=ask, daemon=True).start()

    def metric(self, name: str) -> float | None:
        """The value of one of hangwatch's metrics of the engine, None where there is none."""
        found = re.search(rf"^hangwatch_engine_{name}{{.*}} (\S+)$", read_url(f"{self.agent}/metrics"), re.MULTILINE)
        return float(found[1]) if found is not None else None

    def ticks(self) -> float:
        """How many ticks its agent has done."""
        counted = r"^hangwatch_agent_tick_duration_seconds_count (\S+)$"
        found = re.search(counted, read_url(f"{self.agent}/metrics"), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def livez(self) -> tuple[int, str]:
        """What a liveness probe gets: status and body."""
        try:
            with urllib.request.urlopen(f"{self.agent}/livez", timeout=60) as answer:  # noqa: S310  # our own
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def verdicts(self) -> list[Verdict]:
        """All that was found so far, oldest first."""
        return [read_incident(bundle).verdict for bundle in find_bundles(self.state)]

    def hang(self) -> Verdict:
        """The hang that is found."""
        found = wait_for(lambda: [v for v in self.verdicts() if v.kind in HANG_KINDS], 120.0, "the hang")
        return found[0]


#: Starts an engine with options of its own.
Start = Callable[..., Engine]


@pytest.fixture
def start(jobs: JobRunner, tmp_path: Path) -> Start:
    """Starts an engine under ``hangwatch run`` and waits until hangwatch has found it by itself.

    ``keeper``: below a process that outlives it.
    """

    def begin(*options: str, keeper: bool = False) -> Engine:
        port, state = find_free_port(), tmp_path / "state"
        agent = find_free_port()
        job = jobs.hangwatch(
            "run", "--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S), "--listen", f"127.0.0.1:{agent}", "--",
            *(("sh", "-c", '"$@"; exec sleep 900', "keeper") if keeper else ()),
            sys.executable, str(JOBS / "serving_engine.py"), "--port", str(port), *options,
            env={"HANGWATCH_STATE_DIR": str(state)},
        )  # fmt: skip
        engine = Engine(job, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{agent}", state)
        job.wait_for_output("serving\n", _START_S)
        wait_for(lambda: engine.metric("up") == 1.0, 60.0, "the engine to be found", _POLL_S)
        assert engine.ask(10, 4) == 200
        return engine

    return begin


def named(verdict: Verdict) -> list[str]:
    """The culprits, by name."""
    return [verdict.names.get(rank, str(rank)) for rank in verdict.culprit_ranks]


def says_who_waits(verdict: Verdict) -> bool:
    """Whether the verdict names the engine, its requests and for how long nothing has come."""
    return re.search(r"vLLM at 127\.0\.0\.1:\d+.*\d+ requests? .*no token for \d+ s", verdict.summary) is not None


def test_a_core_that_dies_behind_a_queue_is_named(start: Start) -> None:
    """The server still answers 200; the verdict names the process that is gone, and a liveness probe fails."""
    engine = start("--fault", "dies", "--after", "8")
    assert engine.livez()[0] == 200
    engine.ask_in_vain(7)
    found = engine.hang()
    assert found.kind == "rank_lost"
    assert "VLLM::EngineCore" in named(found)
    assert says_who_waits(found)
    assert found.cause is not None
    assert found.cause.id == "rank-died"
    assert read_url(f"{engine.url}/health") == ""
    status, body = wait_for(
        lambda: said if (said := engine.livez())[0] == 503 else None, 30.0, "the probe to fail", _POLL_S
    )
    assert status == 503
    assert "VLLM::EngineCore" in body


@pytest.mark.usefixtures("long")
def test_an_engine_that_ends_altogether_is_no_hang(start: Start) -> None:
    """Its server ends with its core: whoever asked knows, and whoever started it may start it again."""
    engine = start("--fault", "ends", "--after", "8", keeper=True)
    engine.ask_in_vain(7)
    wait_for(lambda: engine.metric("up") is None, 60.0, "the engine to be gone", _POLL_S)
    ends_at = engine.ticks() + 3 * STALL_AFTER_S
    wait_for(lambda: engine.ticks() >= ends_at, 120.0, "ticks without the engine", _POLL_S)
    assert not engine.verdicts()


def test_a_scheduler_that_schedules_nothing_is_named(start: Start, jobs: JobRunner) -> None:
    """Refused requests have taken its slots: the workers await work, and the line of the scheduler is shown."""
    engine = start("--fault", "leak")
    assert [engine.ask(5000, 1) for _ in range(4)] == [400] * 4
    engine.ask_in_vain(7)
    found = engine.hang()
    assert (found.kind, named(found), found.proven) == ("stall", ["VLLM::EngineCore"], False)
    assert found.cause is not None
    assert found.cause.id == "engine-stalled"
    assert says_who_waits(found)
    assert "7 requests wait" in found.summary
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.function == "run_core"
    assert len(engine.verdicts()) == 1
    again = jobs.hangwatch("diagnose", "--verbose", str(find_bundles(engine.state)[0]))
    again.wait()
    assert "because of VLLM::EngineCore: the engine has requests but produces no output" in (
        said := " ".join(again.stdout().split())
    )
    assert "7 requests wait" in said


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize(("fault", "cause"), [("io", "blocked-io"), pytest.param("sync", None, marks=pytest.mark.soak)])
def test_a_worker_that_is_stuck_in_a_step_is_named(start: Start, tmp_path: Path, fault: str, cause: str | None) -> None:
    """In a read, or in a wait for its device: its rank and line, and once, though ranks and requests both wait."""
    os.mkfifo(tmp_path / "adapter")
    engine = start("--fault", fault, "--after", "8", "--adapter", str(tmp_path / "adapter"))
    engine.ask_in_vain(7)
    found = engine.hang()
    assert (found.kind, found.culprit_ranks) == ("stall", (0,) if fault == "io" else (1,))
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.function == "Worker.step"
    assert found.cause is not None
    assert cause in {None, found.cause.id}
    assert len(engine.verdicts()) == 1


@dataclass(frozen=True)
class Death:
    """A way in which an engine dies, and who sees it: whether the process lives, ``/health``, a request for a token, ``/livez``.

    ``fault``: of the stand-in; or the title of the process that is stopped (``signal 19``), with requests under way if ``busy``.
    """

    seen_by: str
    fault: str = ""
    stopped: str = ""
    busy: bool = True


CHECKS = ("process", "`/health`", "request", "`/livez`")
#: The table of docs/serving.md. Other tests have the details of the first five.
DEATHS = {
    "the scheduler's process is killed": Death("request, `/livez`", "dies"),
    "the whole engine ends": Death("process, `/health`, request", "ends"),
    "the scheduler schedules nothing any more": Death("request, `/livez`", "leak"),
    "a worker is stuck in a read": Death("request, `/livez`", "io"),
    "a worker waits for its device for ever": Death("request, `/livez`", "sync"),
    "a worker is stopped": Death("request, `/livez`", stopped="VLLM::Worker_TP1"),
    "the server's process is stopped": Death("`/health`, request, `/livez`", stopped="serving_engine"),
    "the scheduler is stopped while the engine is idle": Death("request", stopped="VLLM::EngineCore", busy=False),
}


def _process_of(engine: Engine, title: str) -> psutil.Process:
    """The process of an engine with this title."""
    (found,) = [one for one in engine.job.members() if title in " ".join(one.cmdline()[:2])]
    return found


def _who_sees(engine: Engine, server: psutil.Process, death: Death) -> str:
    """Which checks say that something is wrong, once there is a verdict, or none for several patiences."""
    answered = threading.Event()

    def ask_for_a_token() -> None:
        with contextlib.suppress(OSError):
            if engine.ask(1, 1) == 200:
                answered.set()

    threading.Thread(target=ask_for_a_token, daemon=True).start()
    ends_at = engine.ticks() + (6 if death.busy else 3) * STALL_AFTER_S
    wait_for(
        lambda: engine.livez()[0] == 503 or engine.ticks() >= ends_at,
        240.0,
        "a verdict, or ticks without one",
        _POLL_S,
    )
    try:
        with urllib.request.urlopen(f"{engine.url}/health", timeout=30) as answer:  # noqa: S310  # our own
            healthy = answer.status == 200
    except OSError:
        healthy = False
    if not death.busy:
        assert engine.metric("requests_running") == 0.0
    says = (not server.is_running(), not healthy, not answered.is_set(), engine.livez()[0] == 503)
    return ", ".join(name for name, said in zip(CHECKS, says, strict=True) if said)


@pytest.mark.waits
@pytest.mark.usefixtures("long")
def test_who_sees_that_a_process_of_an_engine_is_stopped(start: Start) -> None:
    """Each check on a real engine; each process goes on before the next one is stopped, and the engine is well again."""
    engine = start("--slow", "1")
    server = _process_of(engine, "serving_engine")
    stopped = [death for death in DEATHS.values() if death.stopped]
    for death in sorted(stopped, key=lambda death: death.busy):
        if death.busy:
            engine.ask_in_vain(7)
            wait_for(lambda: engine.metric("requests_running"), 60.0, "requests under way", _POLL_S)
        process = _process_of(engine, death.stopped)
        process.suspend()
        assert _who_sees(engine, server, death) == death.seen_by, death
        process.resume()
        wait_for(
            lambda: engine.livez()[0] == 200 and engine.metric("up") == 1.0,
            120.0,
            "the engine to be well again",
            _POLL_S,
        )


@pytest.mark.soak
@pytest.mark.parametrize("way", [way for way, death in DEATHS.items() if death.fault])
def test_who_sees_that_an_engine_is_dead(start: Start, tmp_path: Path, way: str) -> None:
    """Each check on a real engine: whether it says that something is wrong."""
    death = DEATHS[way]
    os.mkfifo(tmp_path / "adapter")
    faults = ("--fault", death.fault, "--after", "8", "--adapter", str(tmp_path / "adapter"))
    engine = start(*faults, keeper=death.fault == "ends")
    server = _process_of(engine, "serving_engine")
    if death.fault == "leak":
        assert [engine.ask(5000, 1) for _ in range(4)] == [400] * 4
    engine.ask_in_vain(7)
    assert _who_sees(engine, server, death) == death.seen_by


@pytest.mark.waits
@pytest.mark.usefixtures("long")
def test_slow_engines_and_idle_ones_are_left_alone(start: Start) -> None:
    """Idle for several patiences, a prompt whose one step takes longer than the patience, and answers that take many."""
    engine = start("--prefill", str(2.5 * STALL_AFTER_S / 1000), "--slow", "0.3")
    idle_until = engine.ticks() + 3 * STALL_AFTER_S
    wait_for(lambda: engine.ticks() >= idle_until, 120.0, "ticks of an idle engine", _POLL_S)
    assert engine.metric("progress_age_seconds") == 0.0
    assert engine.ask(1000, 2) == 200
    assert engine.ask(1, 40) == 200
    assert not {verdict.kind for verdict in engine.verdicts()} & set(HANG_KINDS)
    assert engine.livez()[0] == 200


def test_the_page_says_what_each_check_sees() -> None:
    """``docs/serving.md`` has the table that the tests above run."""
    page = (JOBS.parents[1] / "docs" / "serving.md").read_text()
    rows = page.partition("<!-- deaths -->")[2].partition("<!-- end")[0].strip().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0][1:] == list(CHECKS)
    shown = {
        cells_of[0]: ", ".join(n for n, cell in zip(CHECKS, cells_of[1:], strict=True) if cell)
        for cells_of in cells[2:]
    }
    assert shown == {way: death.seen_by for way, death in DEATHS.items()}
