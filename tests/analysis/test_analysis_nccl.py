"""Ranks on NCCL: operations wait on the GPU, so the program is found at a later line, and spins there at full speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.patience import Patience, fixed_patience
from hangwatch.analysis.ranks.views import view_rank
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.incident import Verdict
from hangwatch.model.stacks import Frame, StackSample
from hangwatch.sources.flight.recorder import parse_flight
from nccl_dumps import nccl_dump, nccl_entry
from worlds import NOW_NS, SECOND_NS, TORCH, collective_frames, rank, world
from worlds import operation as recorded_operation

MAIN = Frame("<module>", "/srv/train/train.py", 90)
TENSORS = {"loss": "Tensor", "self": "Trainer"}
ITEM = (Frame("log", "/srv/train/train.py", 40, "total += loss.item()", TENSORS), MAIN)
#: As the real ProcessGroupNCCL leaves it: at the level of a module nothing among the locals says that this is a tensor.
ELEMENT = (Frame("<module>", "/srv/train/train.py", 17, "outs[0][0].item()", {"outs": "list[2]", "step": "int=20"}),)
#: Nor is there a tensor among the locals where an attribute is compared, which asks for its value.
COMPARED = (
    Frame("clip", "/srv/train/train.py", 8, "if self.norm > limit:", {"self": "Trainer", "limit": "float"}),
    MAIN,
)
STEP = (
    Frame("_multi_tensor_adamw", "/opt/venv/lib/python3.11/site-packages/torch/optim/adamw.py", 520),
    Frame("train", "/srv/train/train.py", 31, "optimizer.step()"),
    MAIN,
)
MATMUL = (Frame("forward", "/srv/train/model.py", 12, "x = x @ self.weight", {"x": "Tensor", "self": "Block"}), MAIN)
SYNCHRONIZE = (
    Frame(
        "Stream.synchronize",
        "/opt/venv/lib/python3.11/site-packages/torch/cuda/streams.py",
        108,
        "super().synchronize()",
    ),
    Frame("<module>", "/srv/train/train.py", 19, "torch.cuda.current_stream().synchronize()", {}),
)
SCIPY = (Frame("<module>", "/srv/train/train.py", 18, "u, s, v = svd(spectra)", {"spectra": "ndarray"}),)
READING = (Frame("load", "/srv/train/data.py", 9, "rows = json.loads(text)", {"text": "str(9)"}), MAIN)


def flight(number: int, *entries: dict[str, Any], groups: dict[str, tuple[str, str]] | None = None) -> FlightRecord:
    """A record from a dump of these entries."""
    return parse_flight(nccl_dump(*entries, groups=groups), at_ns=NOW_NS, source="json", world_size=4)


def spinning(
    number: int, record: FlightRecord, frames: tuple[Frame, ...], *, owns_gil: bool = False, state: str = "R"
) -> RankCapture:
    """A rank at full speed in one place, with this record."""
    base = rank(number, (), frames, busy=True, state=state, channel="")
    stacks = tuple(
        StackSample(s.at_ns, tuple(msgspec.structs.replace(t, active=True, owns_gil=owns_gil) for t in s.threads))
        for s in base.stacks
    )
    return msgspec.structs.replace(base, flight=record, progress=record.progress, stacks=stacks)


def history(last: dict[str, Any] | None, up_to: int = 7) -> list[dict[str, Any]]:
    """Seven finished operations, and one more."""
    return [nccl_entry(seq=n) for n in range(1, up_to + 1)] + ([last] if last else [])


def pending(**options: Any) -> dict[str, Any]:
    """The eighth operation, in flight."""
    return nccl_entry(**{"seq": 8, "state": "scheduled", **options})


def captured(records: Sequence[tuple[FlightRecord, tuple[Frame, ...]]]) -> Capture:
    """A world of spinning ranks."""
    return world(*(spinning(n, record, frames) for n, (record, frames) in enumerate(records)))


@pytest.mark.parametrize("frames", [ITEM, ELEMENT, COMPARED, STEP, MATMUL])
@pytest.mark.parametrize("state", ["scheduled", "started"])
def test_a_rank_that_spins_for_its_gpu_waits(frames: tuple[Frame, ...], state: str) -> None:
    """At a read of a value, in an optimizer, at an operator that finds the queue full: with NCCL in flight it waits."""
    view = view_rank(spinning(0, flight(0, *history(pending(state=state))), frames))
    assert (view.state, view.motion.state, view.waits_for_no_rank) == ("waiting", "stuck", False)


@pytest.mark.parametrize("frames", [ITEM, ELEMENT, COMPARED, SYNCHRONIZE])
@pytest.mark.parametrize("process_state", ["R", "S"])
def test_a_wait_for_the_device_is_one_state(frames: tuple[Frame, ...], process_state: str) -> None:
    """Whether the host spins or sleeps there, and whatever asks for the value."""
    view = view_rank(spinning(0, flight(0, *history(pending())), frames, state=process_state))
    assert (view.state, view.wait.kind if view.wait else None, view.waits_for_no_rank) == ("waiting", "device", False)


@pytest.mark.parametrize(
    ("record", "frames", "owns_gil"),
    [
        (flight(0, *history(None)), STEP, False),
        (flight(0, *history(pending())), READING, False),
        (flight(0, *history(pending())), SCIPY, False),
        (flight(0, *history(None)), ELEMENT, False),
        (flight(0, *history(pending())), ELEMENT, True),
        (flight(0, *history(pending())), MATMUL, True),
    ],
)
def test_a_rank_that_computes_is_busy(record: FlightRecord, frames: tuple[Frame, ...], owns_gil: bool) -> None:
    """With nothing in flight, in code of its own, or with the interpreter's lock in hand: CPU time is work."""
    view = view_rank(spinning(0, record, frames, owns_gil=owns_gil))
    assert (view.wait, view.motion.state, view.waits_for_no_rank) == (None, "busy", True)


def test_the_verdict_names_the_collective_and_not_the_line_of_the_wait() -> None:
    """Three ranks spin at later lines, the fourth reads a file: the operation is the recorder's."""
    waiting = flight(0, *history(pending()))
    capture = captured([(waiting, ITEM), (waiting, STEP), (waiting, MATMUL), (flight(3, *history(None)), READING)])
    verdict = diagnose(capture, patience=fixed_patience(5.0)).verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("straggler", (3,), (0, 1, 2))
    assert verdict.collective is not None
    assert (verdict.collective.op, verdict.collective.seq, verdict.collective.group) == ("all_reduce", 8, "default_pg")


def test_a_stopped_rank_is_named_though_the_others_spin() -> None:
    """The culprit is the one that is stopped, not those at 100 % CPU."""
    waiting = flight(0, *history(pending()))
    ranks = [spinning(n, waiting, ITEM) for n in range(3)]
    stopped = spinning(3, flight(3, *history(None)), READING, state="T")
    verdict = diagnose(world(*ranks, stopped), patience=fixed_patience(5.0)).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("stall", (3,))
    assert verdict.cause is not None
    assert verdict.cause.id == "rank-stopped"


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        ({"sizes": ((1000,),)}, "shape-mismatch"),
        ({"dtype": "Half"}, "dtype-mismatch"),
        ({"op": "nccl:broadcast"}, None),
    ],
)
def test_mismatches_that_nccl_does_not_notice(other: dict[str, Any], cause: str | None) -> None:
    """Differing sizes, types or operations at one number: the minority is named, and nothing has aborted."""
    usual, odd = flight(0, *history(pending())), flight(3, *history(pending(**other)))
    verdict = diagnose(captured([(usual, ITEM)] * 3 + [(odd, ITEM)]), patience=fixed_patience(5.0)).verdict
    assert verdict.culprit_ranks == (3,)
    assert verdict.kind == ("stall" if cause else "deadlock")
    assert verdict.cause is not None
    if cause is not None:
        assert verdict.cause.id == cause


def test_groups_in_opposite_order_are_a_circle() -> None:
    """Rank 0 is in the first group and rank 1 in the second, both queued behind: both are named."""
    groups = {"0": ("default_pg", "[0, 1]"), "1": ("rows", "[0, 1]"), "2": ("columns", "[0, 1]")}
    rows = {"group": ("1", "rows"), "pg_id": 1, "seq": 1, "state": "scheduled"}
    columns = {"group": ("2", "columns"), "pg_id": 2, "seq": 1, "state": "scheduled"}
    one = flight(0, nccl_entry(**rows, record_id=5), nccl_entry(**columns, record_id=6), groups=groups)
    other = flight(1, nccl_entry(**columns, record_id=5), nccl_entry(**rows, record_id=6), groups=groups)
    blame = build_case(captured([(one, ITEM), (other, ITEM)])).blame
    assert (blame.shape, blame.culprits) == ("cycle", (0, 1))
    verdict = diagnose(captured([(one, ITEM), (other, ITEM)]), patience=fixed_patience(5.0)).verdict
    assert verdict.kind == "stall"
    assert verdict.cause is not None
    assert verdict.cause.id == "group-order-inversion"


def test_a_send_waits_for_the_peer_that_its_record_names() -> None:
    """NCCL records who sends to whom: a receive from the wrong rank leaves the sender alone, and both wait."""
    send = nccl_entry(seq=3, op="nccl:send 0->1", p2p=True, state="scheduled", record_id=9)
    wrong = nccl_entry(seq=3, op="nccl:recv 1<-2", p2p=True, state="scheduled", record_id=9)
    idle = nccl_entry(seq=1, record_id=1)
    records = [flight(0, idle, send), flight(1, idle, wrong), flight(2, idle), flight(3, idle)]
    capture = captured([(r, ITEM if n < 2 else READING) for n, r in enumerate(records)])
    case = build_case(capture)
    assert {(e.waiters, e.awaited) for e in case.graph.edges} == {((0,), (1,)), ((1,), (2,))}
    assert case.blame.culprits == (2,)


def test_a_matching_send_and_receive_wait_for_nobody() -> None:
    """Both ends are there: whatever keeps them is no rank."""
    send = nccl_entry(seq=3, op="nccl:send 0->1", p2p=True, state="scheduled", record_id=9)
    receive = nccl_entry(seq=5, op="nccl:recv 1<-0", p2p=True, state="scheduled", record_id=9)
    case = build_case(captured([(flight(0, send), ITEM), (flight(1, receive), ITEM)]))
    assert case.graph.edges == ()


def p2p(rank_: int, op: str, peer: int, record_id: int) -> dict[str, Any]:
    """A send or receive of a rank, in flight."""
    arrow = f"{op} {rank_}->{peer}" if op == "send" else f"{op} {rank_}<-{peer}"
    return nccl_entry(seq=record_id, op=f"nccl:{arrow}", p2p=True, state="scheduled", record_id=record_id)


def test_two_ranks_that_receive_before_they_send() -> None:
    """Each send is behind a receive from the same rank, and the two have one stream: both are to blame, and not who follows.

    Which stream a batch of one is on is not known, so it is no proof.
    """
    first = [flight(n, p2p(n, "recv", 1 - n, 5), p2p(n, "send", 1 - n, 6)) for n in range(2)]
    capture = captured([*((r, SYNCHRONIZE) for r in first), (flight(2, p2p(2, "recv", 1, 5)), SYNCHRONIZE)])
    case = build_case(capture)
    assert (case.blame.shape, case.blame.culprits, case.blame.proof) == ("cycle", (0, 1), None)


def test_a_likelihood_that_leads_into_a_circle() -> None:
    """Rank 2's receive meets a send that is queued behind another one's: likely, and enough beside a circle that is certain.

    Rank 0 waits in a barrier for the others, rank 1 for a send of rank 0's.
    """
    barrier = Frame("barrier", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9)
    one = flight(1, p2p(1, "recv", 0, 5), p2p(1, "send", 2, 6))
    two = flight(2, p2p(2, "recv", 1, 5))
    ranks = (rank(0, (), (barrier, MAIN)), spinning(1, one, SYNCHRONIZE), spinning(2, two, SYNCHRONIZE))
    blame = build_case(world(*ranks)).blame
    assert (blame.shape, blame.culprits, blame.proof) == ("cycle", (0,), None)


def test_a_retired_operation_of_nccl_has_not_completed() -> None:
    """torch retires what has timed out, too: the dump it writes then must still show what hangs."""
    record = flight(0, *history(pending(retired=True)))
    assert [o.seq for o in record.operations if not o.completed] == [8]
    gloo = nccl_entry(seq=1, op="gloo:all_reduce", state="scheduled", retired=True)
    assert parse_flight(nccl_dump(gloo), at_ns=1, source="json").operations[0].completed


#: Nothing in the line says that it asks a device for a value, and no local is a tensor.
ASKS = (Frame("check", "/srv/train/train.py", 21, "if torch.isnan(self.loss):", {"self": "Trainer"}), MAIN)


def running(frames: tuple[Frame, ...], *files: str, asleep: bool = True) -> Capture:
    """Rank 0 at full speed in one place for twelve seconds, in the code of these files; rank 1 has not joined, and sleeps."""
    ahead, behind = flight(0, *history(pending())), flight(1, *history(None))
    first = spinning(0, ahead, frames)
    at_ns = [NOW_NS - n * SECOND_NS for n in (8, 4, 1, 0)]
    processes = [msgspec.structs.replace(first.processes[-1], at_ns=at, switches=5, cpu_s=at / 1e9) for at in at_ns]
    processes[-1] = msgspec.structs.replace(processes[-1], runs_in=files)
    stacks = (msgspec.structs.replace(first.stacks[-1], at_ns=at) for at in at_ns)
    first = msgspec.structs.replace(first, processes=tuple(processes), stacks=tuple(stacks))
    sleeping = (Frame("load", "/srv/train/data.py", 15, "time.sleep(10000)"), MAIN)
    second = rank(
        1, (), sleeping if asleep else READING, channel="hrtimer_nanosleep" if asleep else "", busy=not asleep
    )
    return world(first, msgspec.structs.replace(second, flight=behind, progress=behind.progress))


@pytest.mark.parametrize("frames", [ASKS, ITEM, SCIPY, MATMUL])
@pytest.mark.parametrize(
    "files",
    [
        ("libcuda.so.550.54",),
        ("libcudart.so.13", "libc.so.6"),
        ("[vdso]", "libamdhip64.so.6"),
        ("libcuda.so.1", "libstdc++.so.6"),
    ],
)
def test_a_rank_that_runs_in_the_driver_alone_waits(frames: tuple[Frame, ...], files: tuple[str, ...]) -> None:
    """Whatever its line says."""
    found = diagnose(running(frames, *files), patience=fixed_patience(6.0), min_wait_s=0.5)
    verdict = found.verdict
    assert found.case.views[0].state == "waiting"
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks, verdict.proven) == ("stall", (1,), (0,), False)


@pytest.mark.parametrize("frames", [ASKS, ITEM, ELEMENT, MATMUL])
@pytest.mark.parametrize(
    "files", [("libtorch_cpu.so",), ("libmkl_core.so.2", "libcuda.so.550.54"), ("libc.so.6", "libz.so.1.2"), ("",)]
)
def test_a_rank_that_runs_in_any_other_code_works(frames: tuple[Frame, ...], files: tuple[str, ...]) -> None:
    """Its operation is in flight, and its line may even ask for a value: it computes, for however long."""
    capture = running(frames, *files)
    for patience in (fixed_patience(6.0), fixed_patience(0.5), None):
        assert diagnose(capture, patience=patience, min_wait_s=0.5).verdict.kind == "healthy"


def test_what_the_kernel_does_not_tell_is_assumed_late() -> None:
    """In one place, without the lock, at full speed: a wait for the device, or one long call that computes."""
    capture = running(ASKS)
    assert diagnose(capture, patience=fixed_patience(6.0), min_wait_s=0.5).verdict.kind == "healthy"
    for patience in (Patience(stall_s=2.0, busy_s=8.0, blocked_s=2.0), None):
        verdict = diagnose(capture, patience=patience, min_wait_s=0.5).verdict
        assert (verdict.kind, verdict.culprit_ranks, verdict.proven) == ("stall", (1,), False)
    assert diagnose(running(ASKS, "libc.so.6"), patience=fixed_patience(6.0), min_wait_s=0.5).verdict.kind == "healthy"


def test_a_rank_that_has_slept_meanwhile_is_not_assumed_to_wait() -> None:
    """Nor one that was elsewhere, or had the lock: it goes on."""
    capture = running(ASKS)
    first = capture.ranks[0]
    slept = msgspec.structs.replace(first.processes[1], switches=4)
    elsewhere = msgspec.structs.replace(first.stacks[1], threads=rank(0, (), READING).stacks[0].threads)
    changed = (
        {"processes": (first.processes[0], slept, *first.processes[2:])},
        {"stacks": (first.stacks[0], elsewhere, *first.stacks[2:])},
    )
    for change in changed:
        other = msgspec.structs.replace(capture, ranks=(msgspec.structs.replace(first, **change), capture.ranks[1]))
        assert diagnose(other, patience=None).verdict.kind == "healthy"


def connecting(*operations: Operation, frames: tuple[Frame, ...] = collective_frames("all_reduce")) -> Capture:
    """Rank 0 polls in an all_reduce, or in ``frames``, which no recorder shows, for twelve seconds; rank 1 sleeps."""
    polling = rank(0, operations, frames, busy=True, state="R", channel="")
    at_ns = range(NOW_NS - 12 * SECOND_NS, NOW_NS + 1, 4 * SECOND_NS)
    last = polling.processes[-1]
    processes = (msgspec.structs.replace(last, at_ns=at, switches=7000 * n) for n, at in enumerate(at_ns))
    stacks = (msgspec.structs.replace(polling.stacks[-1], at_ns=at) for at in at_ns)
    polling = msgspec.structs.replace(polling, processes=tuple(processes), stacks=tuple(stacks))
    asleep = (Frame("train", "/srv/train/train.py", 15, "time.sleep(10000)"), MAIN)
    return world(polling, rank(1, operations, asleep, channel="hrtimer_nanosleep"))


def test_a_rank_in_its_first_collective_polls_until_all_have_come() -> None:
    """NCCL connects in the first call, before torch records it: the host polls there, and that is no motion."""
    found = diagnose(connecting(), patience=fixed_patience(6.0), min_wait_s=0.5).verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks, found.proven) == ("stall", (1,), (0,), False)
    assert diagnose(connecting(), patience=fixed_patience(30.0), min_wait_s=0.5).verdict.kind == "healthy"


@pytest.mark.parametrize(("called_s", "kind"), [(1, "healthy"), (5, "healthy"), (10, "stall")])
def test_a_rank_that_goes_from_one_collective_to_the_next_does_not_hang(called_s: int, kind: str) -> None:
    """It may be in the same line each time it is seen, and each time for another one: what it called last is younger then.

    Where that was before it came to the line, and in another group or by another backend, the line is a first collective.
    """
    group = Group("0", (0, 1), "default_pg")
    last = msgspec.structs.replace(recorded_operation(1, group, 1), created_ns=NOW_NS - called_s * SECOND_NS)
    found = diagnose(connecting(last), patience=fixed_patience(6.0), min_wait_s=0.5).verdict
    assert (found.kind, found.proven) == (kind, False)


@pytest.mark.parametrize(
    ("line", "kind"), [("work = irecv(tensor, src=src)", "stall"), ("work.wait()", "healthy"), (None, "healthy")]
)
def test_a_rank_in_its_first_recv_polls_until_the_sender_has_come(line: str | None, kind: str) -> None:
    """Torch makes a communicator of the two in the call. On Gloo the call returns at once, and what it waits for moves."""
    call = Frame("recv", TORCH, 2796, line, locals={"src": "int=1", "group": "None"})
    capture = connecting(frames=(call, *collective_frames("recv")[1:]))
    first, second = capture.ranks
    capture = msgspec.structs.replace(capture, ranks=(msgspec.structs.replace(first, unrecorded=True), second))
    found = diagnose(capture, patience=fixed_patience(6.0), min_wait_s=0.5).verdict
    assert found.kind == kind
    if kind == "stall":
        assert (found.culprit_ranks, found.waiting_ranks, found.proven) == ((1,), (0,), False)


def test_a_line_of_unrecorded_collectives_is_no_first_one() -> None:
    """Where a recorder is missing (Gloo's before torch 2.10), that nothing was recorded says nothing."""
    capture = connecting()
    ranks = tuple(msgspec.structs.replace(r, unrecorded=True) for r in capture.ranks)
    capture = msgspec.structs.replace(capture, ranks=ranks)
    assert diagnose(capture, patience=fixed_patience(6.0), min_wait_s=0.5).verdict.kind == "healthy"


def test_the_first_collective_of_a_group_waits_for_its_members() -> None:
    """Rank 0 has used the group of all, and not that of ranks 0 and 1: rank 2, which trains on, is not awaited."""
    everyone, pair = Group("0", (0, 1, 2), "default_pg"), Group("1", (0, 1), "metrics")
    capture = connecting(
        msgspec.structs.replace(recorded_operation(1, everyone, 1), created_ns=NOW_NS - 12 * SECOND_NS)
    )
    unused = (GroupProgress(everyone, 1, -1, 1), GroupProgress(pair, 0, -1, 0))
    ranks = (*capture.ranks, rank(2, (), READING, busy=True))
    capture = world(*(msgspec.structs.replace(r, progress=unused[: 1 if r.rank == 2 else 2]) for r in ranks))
    found = diagnose(capture, patience=fixed_patience(6.0), min_wait_s=0.5).verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (1,), (0,))


def verdict_of(*records: tuple[FlightRecord, tuple[Frame, ...]]) -> Verdict:
    """What is said of ranks that spin, with these records."""
    return diagnose(captured(records), patience=fixed_patience(5.0)).verdict


def test_one_operation_with_two_sizes_is_not_called_two_operations() -> None:
    """Both called all_reduce: that the ranks called different operations stands nowhere beside it."""
    sides = [flight(n, *history(pending(sizes=((1000 - n,),)))) for n in range(2)]
    verdict = verdict_of(*((side, ITEM) for side in sides))
    assert verdict.cause is not None
    assert verdict.cause.id == "shape-mismatch"
    assert "collective-mismatch" not in {cause.id for cause in verdict.alternatives}


@pytest.mark.parametrize("joined", [True, False])
def test_backends_that_serve_one_group_number_their_operations_apart(joined: bool) -> None:
    """Number 3 of Gloo is no wrong pair with number 3 of NCCL: ranks that gather objects wait for one that has not come yet."""
    entries = [
        nccl_entry(record_id=10 + n, seq=n, op="gloo:all_gather", state="scheduled", retired=n < 3) for n in (1, 2, 3)
    ]
    trained = flight(0, *(nccl_entry(seq=n, op="nccl:reduce_scatter") for n in range(1, 8)))
    ranks = []
    for n in range(4):
        comes = joined or n < 3
        gathered = flight(n, *(entries if comes else entries[:2]))
        operations = (*trained.operations, *gathered.operations)  # each backend has a recorder of its own
        record = msgspec.structs.replace(trained, operations=operations, progress=())
        base = rank(n, (), collective_frames("all_gather") if comes else READING)
        ranks.append(msgspec.structs.replace(base, flight=record, progress=None))
    blame = build_case(world(*ranks)).blame
    assert (blame.culprits, blame.proof) == (() if joined else (3,), None)


@pytest.mark.parametrize("undefined", ["Undefined", "UNKNOWN_SCALAR"])
def test_what_a_rank_does_not_give_to_a_gather_has_no_type_to_agree_on(undefined: str) -> None:
    """NCCL records an output without a type where a rank is not the destination; another type that is given differs still."""
    given = nccl_entry(seq=8, op="nccl:gather", state="scheduled")
    none_given = {**given, "output_sizes": [[0]], "output_dtypes": [undefined]}
    other_type = {**none_given, "input_dtypes": ["Half"]}
    destination, beside, apart = (
        parse_flight(nccl_dump(e), at_ns=1, source="json").operations[0] for e in (given, none_given, other_type)
    )
    assert signature(destination) == signature(beside)
    assert signature(destination) != signature(apart)


def test_a_stale_beat_does_not_say_how_far_a_stopped_rank_had_come() -> None:
    """Its last beat is from number 3. What the others have completed it had joined, so the eighth is the first it lacks."""
    waiting = flight(0, *history(pending()))
    ranks = [spinning(n, waiting, ITEM) for n in range(3)]
    stopped = spinning(3, flight(3, *history(None, up_to=3)), READING, state="T")
    stopped = msgspec.structs.replace(stopped, flight=None, beat_age_s=9.0)
    verdict = diagnose(world(*ranks, stopped), patience=fixed_patience(5.0)).verdict
    assert (verdict.culprit_ranks, verdict.cause.id if verdict.cause else None) == ((3,), "rank-stopped")
    assert verdict.divergence is not None
    assert verdict.divergence.seq == 8


def test_of_a_send_or_receive_the_call_is_shown_and_not_what_came_after() -> None:
    """The host goes on after a receive; the lines are those of the receives, by the recorder."""
    called = [
        ("recv", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9),
        ("swap", "/srv/train/train.py", 77),
    ]
    receives = [
        nccl_entry(seq=3, op=f"nccl:recv {n}<-{1 - n}", p2p=True, state="scheduled", record_id=9, frames=called)
        for n in range(2)
    ]
    groups = {"0": ("default_pg", "[0, 1]")}
    sides = [(flight(n, nccl_entry(seq=1, record_id=1), one, groups=groups), ELEMENT) for n, one in enumerate(receives)]
    verdict = verdict_of(*sides)
    assert verdict.divergence is not None
    lines = (verdict.divergence.culprit, verdict.divergence.others)
    assert [line.line if line is not None else None for line in lines] == [77, 77]
    assert verdict.cause is not None
    assert verdict.cause.id == "p2p-mismatch"
    said = [(e.source, e.says) for e in verdict.cause.evidence if e.rank == 0]
    assert said[:2] == [
        ("flight recorder", "waits in recv from rank 1"),
        ("flight recorder", "called in swap (train/train.py:77)"),
    ]
