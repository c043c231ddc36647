"""Which process of a serving engine is named where requests are there and nothing comes out, and which engines are left alone."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.incident import Verdict
from hangwatch.model.numbers import guest_number
from hangwatch.model.serving import EngineState
from hangwatch.model.stacks import Block, Frame
from worlds import rank, world

FRONT, CORE = guest_number("front", 0), guest_number("core", 0)
FILE, LOOP = "/srv/serve/engine.py", Block("while", 20, "while True:")
TAKES = (
    Frame("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 395),
    Frame("loop", FILE, 21, "call = calls.recv()", blocks=(LOOP,)),
)
SERVES = (
    Frame("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
    Frame("BaseServer.serve_forever", "/usr/lib/python3.11/socketserver.py", 233),
    Frame("main", FILE, 90, "http.serve_forever()"),
)
SCHEDULES = (
    Frame("loop", FILE, 45, "time.sleep(0.01)", blocks=(Block("while", 40, "while True:"),)),
    Frame("<module>", FILE, 99, "loop()"),
)
READS = (Frame("load", FILE, 60, "file.read()"), Frame("loop", FILE, 24, "step(call)", blocks=(LOOP,)))
COMPUTES = (
    Frame("forward", FILE, 70, "hidden = shard @ hidden"),
    Frame("loop", FILE, 24, "step(call)", blocks=(LOOP,)),
)
STATE = EngineState(
    "vllm", "127.0.0.1:8000", 3, 12, demand_s=9.0, still_s=8.0, patience_s=6.0, front=FRONT, beside=(FRONT, CORE)
)


def process(
    number: int, frames: tuple[Frame, ...], call: str, on: str | None = None, *, state: str = "S", busy: bool = False
) -> RankCapture:
    """One process of the engine; those that are no ranks have a name."""
    one = rank(
        number,
        (),
        frames,
        channel="hrtimer_nanosleep" if "sleep" in call else "unix_stream_read_generic",
        state=state,
        busy=busy,
    )
    names = {FRONT: "vLLM-server", CORE: "VLLM::EngineCore"}
    identity = msgspec.structs.replace(one.identity, world=names.get(number, ""))
    seen = tuple(msgspec.structs.replace(p, syscall=call, blocked_on=on) for p in one.processes)
    return msgspec.structs.replace(one, identity=identity, processes=seen)


SERVER = process(FRONT, SERVES, "poll", "socket:[1] listening on port 8000")
WORKERS = tuple(process(number, TAKES, "read", "socket:[7]") for number in (0, 1))
IDLE_CORE = process(CORE, TAKES, "read", "socket:[9]")


def verdict(engine: EngineState, *processes: RankCapture) -> Verdict:
    """What is said of an engine with these processes."""
    capture: Capture = msgspec.structs.replace(world(*processes), engine=engine)
    found = diagnose(capture, patience=fixed_patience(6.0))
    again = diagnose(
        msgspec.structs.replace(capture, ranks=tuple(reversed(capture.ranks))), patience=fixed_patience(6.0)
    )
    assert found.verdict == again.verdict, "the order of processes changes nothing"
    return found.verdict


def named(found: Verdict) -> list[str]:
    """The culprits, by name."""
    return [found.names.get(number, str(number)) for number in found.culprit_ranks]


def test_a_scheduler_that_gives_no_work_is_named() -> None:
    """The workers await work, and it does not await requests."""
    found = verdict(STATE, *WORKERS, SERVER, process(CORE, SCHEDULES, "clock_nanosleep"))
    assert (found.kind, named(found), found.proven) == ("stall", ["VLLM::EngineCore"], False)
    assert found.cause is not None
    assert found.cause.id == "engine-stalled"
    assert found.summary.startswith(
        "vLLM at 127.0.0.1:8000 hangs: 12 requests wait and 3 run, no token for 8 s, because of VLLM"
    )
    assert "engine.py:45" in found.cause.explanation


def test_a_scheduler_that_is_gone_is_named_early() -> None:
    """After a quarter of the patience, as nothing else is to be expected of it."""
    gone = process(CORE, (), "", state="gone")
    early = msgspec.structs.replace(STATE, patience_s=60.0, still_s=15.0, lost=(CORE,))
    found = verdict(early, *WORKERS, SERVER, gone)
    assert (found.kind, named(found)) == ("rank_lost", ["VLLM::EngineCore"])
    assert found.cause is not None
    assert found.cause.id == "rank-died"
    soon = msgspec.structs.replace(early, still_s=14.0)
    assert verdict(soon, *WORKERS, SERVER, gone).kind == "healthy"
    ending = msgspec.structs.replace(early, patience_s=6.0, still_s=5.0)
    assert verdict(ending, *WORKERS, SERVER, gone).kind == "healthy"


def test_a_process_that_is_blocked_in_a_read_is_named_with_its_cause() -> None:
    """A worker of an engine with one worker, which no collective shows."""
    found = verdict(STATE, process(0, READS, "read", "/mnt/adapters/a"), SERVER, IDLE_CORE)
    assert (found.kind, named(found)) == ("stall", ["0"])
    assert found.cause is not None
    assert found.cause.id == "blocked-io"
    assert "no token for 8 s" in found.summary


@pytest.mark.parametrize("still_s", [8.0, 290.0])
def test_a_long_prompt_is_left_alone(still_s: float) -> None:
    """A worker that computes, for as long as ten times the patience; then it is a warning."""
    computing = process(0, COMPUTES, "", busy=True)
    engine = msgspec.structs.replace(STATE, still_s=still_s)
    assert verdict(engine, computing, SERVER, IDLE_CORE).kind == "healthy"
    late = verdict(msgspec.structs.replace(STATE, still_s=301.0), computing, SERVER, IDLE_CORE)
    assert (late.kind, late.severity) == ("straggler", "warning")


@pytest.mark.parametrize("still_s", [8.0, 290.0, 9000.0])
def test_an_engine_whose_processes_all_await_is_never_a_hang(still_s: float) -> None:
    """Its metrics may be outdated: a warning at most, and late."""
    found = verdict(msgspec.structs.replace(STATE, still_s=still_s), *WORKERS, SERVER, IDLE_CORE)
    assert found.kind == ("straggler" if still_s > 300.0 else "healthy")
    assert not found.culprit_ranks


@pytest.mark.parametrize("changed", [{"running": 0, "waiting": 0}, {"still_s": 5.0}])
def test_without_requests_or_before_the_patience_nothing_is_said(changed: dict[str, float]) -> None:
    """Whatever the processes look like."""
    engine = msgspec.structs.replace(STATE, **changed)
    assert verdict(engine, *WORKERS, SERVER, process(CORE, SCHEDULES, "clock_nanosleep")).kind == "healthy"


def test_an_engine_of_which_no_rank_is_seen_has_a_verdict_too() -> None:
    """The server and its scheduler are all there is."""
    gone = process(CORE, (), "", state="gone")
    found = verdict(msgspec.structs.replace(STATE, lost=(CORE,)), SERVER, gone)
    assert (found.kind, named(found)) == ("rank_lost", ["VLLM::EngineCore"])


def test_of_several_processes_that_are_gone_the_first_is_named() -> None:
    """A worker that is killed takes the scheduler with it; a server that is gone, too, keeps nobody waiting."""
    worker = guest_number("worker", 0)
    engine = msgspec.structs.replace(STATE, beside=(FRONT, CORE, worker), lost=(worker,))
    gone = tuple(process(n, (), "", state="gone") for n in (CORE, worker))
    assert verdict(engine, SERVER, *gone).culprit_ranks == (worker,)
    ended = process(FRONT, (), "", state="gone")
    assert verdict(engine, ended, *gone).kind == "healthy"
