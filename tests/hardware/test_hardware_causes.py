"""All have joined and nothing completes: what the hardware says makes the difference, and what it says is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Gap, RankCapture
from hangwatch.model.devices import Absence, Communicator, Gpu, KernelEvent, NodeFacts, Port, RasProblem, RasReport
from hangwatch.model.incident import Verdict
from hangwatch.model.processes import ExitStatus, MutexWait, ProcessSample, WatchdogSample
from hangwatch.model.stacks import Frame
from hangwatch.sources.flight.recorder import parse_flight
from nccl_dumps import nccl_dump, nccl_entry
from recorded import first_match
from worlds import NOW_NS, SECOND_NS, rank, world

ITEM = (
    Frame("log", "/srv/train/train.py", 40, "total += loss.item()", {"loss": "Tensor"}),
    Frame("<module>", "/srv/train/train.py", 90),
)
BACKWARD = (
    Frame("_engine_run_backward", "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 882),
    Frame("step", "/srv/train/train.py", 31, "loss.backward()"),
    Frame("<module>", "/srv/train/train.py", 90),
)
SPLITS = (
    Frame("split_group", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 5400),
    Frame("build", "/srv/train/train.py", 12, "group = dist.split_group(split_ranks=halves)"),
    Frame("<module>", "/srv/train/train.py", 90),
)
AGO_NS = 40 * SECOND_NS
#: More than ten times the patience.
LONG_AGO_NS = 400 * SECOND_NS
PATIENCE = fixed_patience(30.0)
ALL = ("kernel log", "nvml", "fabric ports", "nccl ras")


def joined(states: str = "ssss", ago_ns: int = AGO_NS, backend: str = "nccl") -> Capture:
    """Four ranks in one all_reduce, ``s``cheduled or ``b``egun, spinning at a later line."""
    ranks = []
    for number, letter in enumerate(states):
        entry = nccl_entry(
            seq=8,
            op=f"{backend}:all_reduce",
            state="started" if letter == "b" else "scheduled",
            created_ns=NOW_NS - ago_ns,
        )
        record = parse_flight(nccl_dump(entry), at_ns=NOW_NS, source="json")
        base = rank(number, (), ITEM, busy=True, state="R", channel="")
        ranks.append(msgspec.structs.replace(base, flight=record, progress=record.progress))
    return world(*ranks)


def facts(**parts: Any) -> NodeFacts:
    """What a node says that was looked at in every way; its four GPUs are the ranks'."""
    gpus = tuple(Gpu(n, f"GPU-{n}", f"0000:0{n}:00", ranks=(n,), utilization=1.0) for n in range(4))
    absent = (Absence("fabric ports", "no InfiniBand or RoCE device on this node"),)
    return NodeFacts(**{"node": "node-0", "at_ns": NOW_NS, "gpus": gpus, "absent": absent, "looked": ALL, **parts})


def on(capture: Capture, node: NodeFacts | None) -> Capture:
    """The capture with the facts of one node."""
    return msgspec.structs.replace(capture, nodes=(node,) if node is not None else ())


@pytest.mark.parametrize(("ago_ns", "kind"), [(SECOND_NS // 10, "healthy"), (AGO_NS, "stall")])
def test_a_transfer_takes_its_patience_from_when_the_last_rank_joined(ago_ns: int, kind: str) -> None:
    """On a GPU a job went on whose last rank had joined 60 ms before it was looked at; the others had waited for nine seconds."""
    late = next(r for r in joined("bbbb", ago_ns).ranks if r.rank == 3)
    capture = joined("bbbb")
    capture = msgspec.structs.replace(capture, ranks=(*capture.ranks[:3], late))
    assert diagnose(capture, patience=PATIENCE).verdict.kind == kind


def judged(capture: Capture, node: NodeFacts | None = None) -> Verdict:
    """The verdict with the facts of one node."""
    return diagnose(on(capture, node), patience=PATIENCE).verdict


def event(kind: Any = "xid", ago_ns: int = 45 * SECOND_NS, **parts: Any) -> KernelEvent:
    """A line of the kernel's log, from a little before the operation."""
    reported: dict[str, Any] = {"text": "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", "code": 79}
    return KernelEvent(NOW_NS - ago_ns, kind, **{**reported, "bus_id": "0000:02:00", **parts})


LOST = Gpu(2, "GPU-2", "0000:02:00", ranks=(2,), lost="GPU is lost")
IDLE = tuple(
    Gpu(n, f"GPU-{n}", f"0000:0{n}:00", ranks=(n,), utilization=1.0, power_w=70.0, power_limit_w=700.0)
    for n in range(4)
)


DOWN = Port("mlx5_3", 1, "DOWN", "Polling", was_up=True)
GROWN = Port("mlx5_3", 1, "ACTIVE", grown={"symbol_error": 9}, window_s=30.0)
SXID = "nvidia-nvswitch0: SXid (PCI:..): 20034, Fatal, Link 30"
FAULT = RasProblem("error", "rank 1: system error", (), (1,))


@pytest.mark.parametrize(
    ("node", "level", "names"),
    [
        (facts(events=(event(),)), "certain", ("GPU 2 (0000:02:00) of node-0", "rank 2", "fallen off the bus")),
        (facts(gpus=(LOST,)), "certain", ("GPU 2", "the driver cannot reach it")),
        (facts(ports=(DOWN,)), "certain", ("port mlx5_3/1 of node-0", "Polling")),
        (facts(ports=(GROWN,)), "strong", ("symbol_error by 9",)),
        (facts(events=(event("sxid", text=SXID),)), "strong", ("NVSwitch",)),
        (facts(gpus=IDLE), "likely", ("70 of 700 W",)),
        (facts(ras=(RasReport("a:1", "2.30.7", (), (FAULT,)),)), "strong", ()),
    ],
)  # fmt: skip
def test_a_fault_of_the_hardware_is_named(node: NodeFacts, level: str, names: tuple[str, ...]) -> None:
    """GPU, port or switch, whose it is and what was seen of it; it is a stall, and no rank is accused."""
    verdict = judged(joined(), node)
    assert (verdict.kind, verdict.proven, verdict.culprit_ranks) == ("stall", False, ())
    cause = verdict.cause
    assert cause is not None
    assert cause.id == "fabric-or-device"
    assert first_match(on(joined(), node)).level == level
    assert not cause.measured  # no hang of the catalogue has this cause
    for name in names:
        assert name in cause.explanation + " ".join(e.says for e in cause.evidence)


@pytest.mark.parametrize(
    "node",
    [
        None,
        facts(),
        facts(events=(event(code=31), event(code=45), event("oom", code=None))),
        facts(events=(event(ago_ns=3600 * SECOND_NS),)),
        facts(events=(event(bus_id="0000:09:00", rank=None, pid=1),), gpus=(Gpu(9, "", "0000:09:00", ranks=(77,)),)),
        facts(ports=(Port("mlx5_1", 1, "DOWN", "Disabled"), Port("mlx5_0", 1, "ACTIVE"))),
    ],
)
def test_without_a_fault_a_queue_on_the_gpu_gets_ten_times_the_patience(node: NodeFacts | None) -> None:
    """What programs cause, what is long past, another job's GPU, a port never plugged in: no reason to call it a hang soon."""
    assert judged(joined(), node).kind == "healthy"
    late = judged(joined(ago_ns=400 * SECOND_NS), node)
    assert (late.kind, late.culprit_ranks) == ("stall", ())
    assert late.cause is not None
    assert late.cause.id == "fabric-or-device"
    assert first_match(on(joined(ago_ns=400 * SECOND_NS), node)).level == "possible"
    assert ("Not checked: kernel log, nvml" in late.cause.explanation) == (node is None)


def test_a_kernel_that_began_everywhere_and_does_not_end_needs_no_more() -> None:
    """With NCCL's timing the recorder tells that the GPU is in the operation itself."""
    assert judged(joined("bbbb")).kind == "stall"


def test_a_gpu_that_has_not_begun_is_reported() -> None:
    """Three GPUs are in the operation, one is behind something else."""
    verdict = judged(joined("bbsb"), facts(gpus=IDLE))
    assert verdict.cause is not None
    assert "On the GPU of rank 2 the operation has not started" in verdict.cause.explanation


def test_counts_that_differ_speak_against_it() -> None:
    """NCCL has launched less on one rank than on the others: then not all can have joined."""
    problem = RasProblem("mismatch", "rank 2 of communicator 0x1: launched 7 AllReduce, 3 others 8", (), (2,))
    node = facts(ras=(RasReport("a:1", "2.30.7", (), (problem,)),))
    verdict = judged(joined(ago_ns=400 * SECOND_NS), node)
    assert verdict.cause is not None
    assert first_match(on(joined(ago_ns=400 * SECOND_NS), node)).level == "possible"
    assert any("launched 7 AllReduce" in e.says for e in verdict.cause.evidence)


def test_on_gloo_it_stays_a_guess() -> None:
    """There the network is the host's: GPUs and their links say nothing of it."""
    first = first_match(on(joined(backend="gloo", ago_ns=4000 * SECOND_NS), facts(events=(event(),))))
    assert (first.cause, first.level) == ("fabric-or-device", "possible")


def test_a_culprit_on_a_failed_gpu_has_that_for_a_cause() -> None:
    """A rank that hangs in a call of its own, on a GPU that fell off the bus, hangs because of that."""
    capture = joined()
    behind = parse_flight(nccl_dump(nccl_entry(seq=7)), at_ns=NOW_NS, source="json")
    absent = msgspec.structs.replace(capture.ranks[2], flight=behind, progress=behind.progress)
    ranks = tuple(absent if r.rank == 2 else r for r in capture.ranks)
    capture = msgspec.structs.replace(capture, ranks=ranks)
    assert judged(capture, facts(events=(event(),))).culprit_ranks == (2,)
    first = first_match(on(capture, facts(events=(event(),))))
    assert (first.cause, first.level) == ("fabric-or-device", "certain")


def test_a_kill_for_memory_is_reported_as_one() -> None:
    """The kernel's log names the process: the verdict says so, and shows the line."""
    capture = joined()
    gone = ProcessSample(NOW_NS, 1002, "gone", exit=ExitStatus(signal=9, oom_killed=True))
    lost = msgspec.structs.replace(capture.ranks[2], processes=(gone,), stacks=())
    ranks = tuple(lost if r.rank == 2 else r for r in capture.ranks)
    killed = event("oom", text="Memory cgroup out of memory: Killed process 1002 (python)", code=None, pid=1002, rank=2)
    verdict = judged(msgspec.structs.replace(capture, ranks=ranks), facts(events=(killed,)))
    assert (verdict.kind, verdict.culprit_ranks) == ("rank_lost", (2,))
    assert verdict.cause is not None
    assert "out-of-memory killer ended rank 2's process" in verdict.cause.explanation
    assert any(e.source == "kernel log" for e in verdict.cause.evidence)


def test_a_source_that_failed_is_said_to_be_unseen() -> None:
    """What could not be read is not taken for clean."""
    node = facts(looked=("kernel log", "fabric ports"), gpus=())
    capture = msgspec.structs.replace(joined(ago_ns=400 * SECOND_NS), gaps=(Gap("nvml", "not installed"),))
    verdict = judged(capture, node)
    assert verdict.cause is not None
    assert "in kernel log, fabric ports. Not checked: nvml, nccl ras." in verdict.cause.explanation


def test_where_nothing_decides_three_commands_are_named() -> None:
    """On which node, and of which process; what was looked at already is not asked for again."""
    unseen = judged(joined(ago_ns=LONG_AGO_NS))
    looked = judged(joined(ago_ns=LONG_AGO_NS), facts())
    assert unseen.cause is not None
    assert looked.cause is not None
    assert unseen.cause.explanation.count("`") == looked.cause.explanation.count("`") == 6
    pid = joined(ago_ns=LONG_AGO_NS).ranks[0].identity.pid
    assert f"`hangwatch dump --native-stacks --pid {pid}` on node-0" in looked.cause.explanation
    assert "nvidia-smi nvlink -e" in unseen.cause.explanation
    assert "nvidia-smi nvlink -e" not in looked.cause.explanation
    assert (
        "--native-stacks"
        not in (judged(joined(ago_ns=LONG_AGO_NS), facts(gpus=(LOST,))).cause or unseen.cause).explanation
    )


@pytest.mark.parametrize(("launching", "says"), [((), "none of its 4 ranks"), ((1, 2), "ranks 1-2 of 4 launched")])
def test_whether_hosts_still_launch_is_evidence(launching: tuple[int, ...], says: str) -> None:
    """By two reports of NCCL's own counts, a moment apart."""
    report = RasReport("a:1", "2.30.7", (Communicator("0x1", 4, (), launching, 1.0),))
    cause = judged(joined(ago_ns=LONG_AGO_NS), facts(ras=(report,))).cause
    assert cause is not None
    assert any(says in e.says for e in cause.evidence if e.source == "nccl ras")


def test_threads_that_wait_for_each_other_in_native_code_are_shown() -> None:
    """They may be what should have moved the data, and may not: the rank is named, and not accused."""
    capture = joined(ago_ns=LONG_AGO_NS)
    circle = (MutexWait(1101, 1102, "pt_nccl_watchdg", "proxy"), MutexWait(1102, 1101, "proxy", "pt_nccl_watchdg"))
    locked = [msgspec.structs.replace(p, mutexes=circle) for p in capture.ranks[1].processes]
    rank_1 = msgspec.structs.replace(capture.ranks[1], processes=tuple(locked))
    verdict = judged(msgspec.structs.replace(capture, ranks=(capture.ranks[0], rank_1, *capture.ranks[2:])), facts())
    assert verdict.culprit_ranks == ()
    assert verdict.cause is not None
    assert "Threads of rank 1 wait for each other in native code" in verdict.cause.explanation
    waits = [e.says for e in verdict.cause.evidence if e.rank == 1 and "mutex" in e.says]
    assert len(waits) == 2
    assert "thread 1101 (pt_nccl_watchdg)" in waits[0]


def with_watchdog(one: RankCapture, *switches: int, mutexes: tuple[MutexWait, ...] = ()) -> RankCapture:
    """The rank with so many context switches of its watchdog in its last samples."""
    last = one.processes[-len(switches) :]
    told = tuple(
        msgspec.structs.replace(p, watchdogs=(WatchdogSample(77, n),), mutexes=mutexes)
        for p, n in zip(last, switches, strict=True)
    )
    return msgspec.structs.replace(one, processes=told)


def left_behind(*switches: int, mutexes: tuple[MutexWait, ...] = (), where: tuple[Frame, ...] = BACKWARD) -> Capture:
    """Rank 1 has not come to the others' operation, and its watchdog has switched so often in its last samples."""
    ranks = [with_watchdog(r, 50, 53) for r in joined(ago_ns=LONG_AGO_NS).ranks]
    record = parse_flight(nccl_dump(nccl_entry(seq=7)), at_ns=NOW_NS, source="json")
    behind = msgspec.structs.replace(rank(1, (), where), flight=record, progress=record.progress)
    ranks[1] = with_watchdog(behind, *switches, mutexes=mutexes)
    return world(*ranks)


def test_a_rank_whose_calls_to_the_device_do_not_come_back_waits_for_nobody() -> None:
    """Its line says that it waits in backward; that its watchdog does not run either says for whom: for its driver."""
    capture = on(left_behind(40, 40), facts())
    verdict = judged(capture, facts())
    assert (verdict.culprit_ranks, verdict.waiting_ranks, verdict.proven) == ((1,), (0, 2, 3), False)
    assert verdict.cause is not None
    assert first_match(capture).cause == "device-hangs"
    assert "Calls of rank 1 to the GPU do not return" in verdict.cause.explanation
    assert [e.says for e in verdict.cause.evidence if e.rank == 1] == [
        "PyTorch's NCCL watchdog checks the device ten times a second, but has not run for 0.5 s"
    ]


@pytest.mark.parametrize(
    "capture",
    [
        left_behind(40, 43),
        left_behind(40),
        left_behind(40, 40, mutexes=(MutexWait(77, 1001, "pt_nccl_watchdg", "python"),)),
        left_behind(40, 40, where=SPLITS),
    ],
    ids=["runs", "seen-once", "locked-out", "creates-a-group"],
)
def test_a_watchdog_that_runs_or_may_be_locked_out_says_nothing(capture: Capture) -> None:
    """The main thread keeps NCCL's communicator locked while it waits for other ranks to split it."""
    assert "Calls of rank" not in first_match(on(capture, facts())).says


def test_where_all_have_joined_the_device_that_hangs_is_named() -> None:
    """As a cause, and its rank as evidence: it has done what it had to do."""
    ranks = list(joined(ago_ns=LONG_AGO_NS).ranks)
    ranks[2] = with_watchdog(msgspec.structs.replace(rank(2, (), ITEM), flight=ranks[2].flight), 40, 40)
    capture = on(world(*ranks), facts())
    verdict = judged(capture, facts())
    assert verdict.cause is not None
    assert first_match(capture).cause == "device-hangs"
    assert verdict.cause.explanation.endswith(
        "Calls of rank 2 to the GPU do not return: the driver or the device hangs."
    )


@pytest.mark.parametrize(("backend", "hangs"), [("nccl", True), ("gloo", False)])
def test_a_backward_pass_with_nothing_in_flight_waits_for_its_own_device(backend: str, hangs: bool) -> None:
    """On NCCL the host waits for its device alone, and what other ranks have to do with that is on record."""
    ranks = list(joined(ago_ns=LONG_AGO_NS, backend=backend).ranks)
    record = parse_flight(nccl_dump(nccl_entry(seq=7, op=f"{backend}:all_reduce")), at_ns=NOW_NS, source="json")
    ranks[1] = msgspec.structs.replace(rank(1, (), BACKWARD), flight=record, progress=record.progress)
    capture = on(world(*ranks), facts())
    assert (first_match(capture).cause == "device-hangs") is hangs
    if hangs:
        assert judged(capture, facts()).culprit_ranks == (1,)
