"""Dumps of whole jobs, whatever their names and packing: who is to blame, what is set aside, what is said to be missing."""

from __future__ import annotations

import functools
import gzip
import io
import lzma
import os
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dump_jobs import BEGAN_NS, dump, entry, steps, straggling, world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.analysis.case import build_case
from hangwatch.analysis.waiting.blame import Blame
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.errors import UserError
from hangwatch.postmortem.artifacts import Artifacts, read_artifacts
from hangwatch.sources.dumps.contents import Content
from hangwatch.sources.dumps.gathering import gather

DUMPS = Path(__file__).resolve().parents[1] / "fixtures" / "dumps"
#: What was injected, by NVRx's own ``fault_injection.log``.
TRUTH = {"gpu_error_1st": (12, 14), "lock_gil_1st": (9, 14)}


@functools.cache
def megatron(fault: str) -> dict[int, bytes]:
    """The dumps of the 16 ranks of a real job."""
    with tarfile.open(DUMPS / f"{fault}.tar.gz") as archive:
        opened = {m.name: archive.extractfile(m) for m in archive.getmembers()}
        return {int(name.rpartition("_")[2]): stream.read() for name, stream in opened.items() if stream is not None}


def _no_progress(done: int, total: int | None) -> None:
    """Nobody watches."""


def look(files: Mapping[str, bytes]) -> Capture:
    """What these files tell."""
    contents = [Content(name, data=data) for name, data in files.items()]
    return gather(contents, job="job", total=len(files), progress=_no_progress).capture


def blame(files: Mapping[str, bytes]) -> Blame:
    """Who is to blame by them."""
    return build_case(look(files)).blame


def pickled(dumps: Iterable[Mapping[str, Any]], name: str = "nccl_trace_rank_{}") -> dict[str, bytes]:
    """The dumps of ranks 0, 1, ... as files."""
    return {name.format(rank): pickle.dumps(one, protocol=2) for rank, one in enumerate(dumps)}


def reported(capture: Capture) -> str:
    """What is said to be missing."""
    return "\n".join(str(gap) for gap in capture.gaps)


@pytest.mark.parametrize("fault", TRUTH)
@pytest.mark.usefixtures("real")
def test_faults_of_a_real_job_are_named_exactly(fault: str) -> None:
    """Tensor, pipeline, expert and data groups wait for one another; the injected ranks alone are named, nobody is missing."""
    capture = look({f"_dump_{rank}": data for rank, data in megatron(fault).items()})
    verdict = diagnose(capture).verdict
    assert (verdict.culprit_ranks, verdict.kind) == (TRUTH[fault], "stall")
    assert len(verdict.waiting_ranks) == 14
    assert capture.gaps == ()


@pytest.mark.parametrize("fault", TRUTH)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.usefixtures("real")
def test_no_innocent_rank_is_named_when_dumps_are_hidden(fault: str, data: st.DataObject) -> None:
    """Without any of the dumps, under any names in any order: the injected ranks, or some that nobody saw; never another."""
    hidden = data.draw(st.sets(st.integers(0, 15), max_size=6))
    names = data.draw(st.permutations([f"part-{i}" for i in range(16)]))
    files = {names[rank]: dump for rank, dump in megatron(fault).items() if rank not in hidden}
    shuffled = dict(data.draw(st.permutations(list(files.items()))))
    found = blame(shuffled)
    seen = set(TRUTH[fault]) - hidden
    assert found.culprits
    assert set(found.culprits) <= set(TRUTH[fault]) | hidden
    if not hidden or seen == set(TRUTH[fault]) - hidden == set(found.culprits):
        assert set(found.culprits) == seen


@pytest.mark.parametrize("fault", TRUTH)
def test_one_dump_of_many_is_a_hang_that_nobody_is_known_to_have_caused(fault: str) -> None:
    """Its rank has waited for longer than any work takes; of those it waits for there is only their absence to tell."""
    verdict = diagnose(look({"_dump_13": megatron(fault)[13]})).verdict
    assert (verdict.kind, verdict.proven, verdict.waiting_ranks) == ("stall", False, (13,))
    assert verdict.cause is not None
    assert verdict.cause.id == "unknown"


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.3", "2.7", "2.9", "2.10"])
@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_{}", "comm_lib_trace_rank_{}", "_dump_{}", "host_{}", "a/rank{}/fr.pkl"]
)
def test_versions_and_names(version: str, name: str) -> None:
    """Every version has what tells who stays away, and every usual name tells whose the dump is."""
    found = blame(pickled(straggling(3, 1, version), name))
    assert (found.culprits, found.waiting, found.shape) == ((1,), (0, 2), "root")


def test_json_and_pickle_say_the_same() -> None:
    """The worker server's JSON (numbers as text, 0 for no time) leads to the same ranks."""
    dumps = [msgspec.json.decode(msgspec.json.encode(one)) for one in straggling(3, 2, "2.10")]
    for one in dumps:
        for status in one["pg_status"].values():
            status.update({name: str(number) for name, number in status.items()})
    assert blame({f"{rank}.json": msgspec.json.encode(one) for rank, one in enumerate(dumps)}).culprits == (2,)


def test_names_decide_only_where_the_content_does_not() -> None:
    """A rank says which end of a send it is; a file that is called otherwise is that rank's still."""
    sending = [entry(0, "send 0->1", 1, state="scheduled")], [entry(0, "all_reduce", 1, state="scheduled")]
    first, second = (dump(entries, {"0": ("default_pg", [4, 6])}) for entries in sending)
    capture = look({"rank_6": pickle.dumps(first), "rank_4": pickle.dumps(second)})
    assert [(r.rank, r.flight.operations[0].op) for r in capture.ranks if r.flight] == [(4, "send")]
    assert "rank_4: another dump of rank 4" in reported(capture)


def test_a_dump_of_nobody_is_set_aside() -> None:
    """Where neither content nor name shows which rank it belongs to, or they contradict each other, the file says so."""
    files = pickled(straggling(3, 1)) | {
        "some": pickle.dumps(straggling(3, 1)[0]),
        "rank_9": pickle.dumps(straggling(3, 1)[0]),
    }
    capture = look(files)
    assert [r.rank for r in capture.ranks] == [0, 1, 2]
    assert "some: neither content nor name shows which rank it belongs to" in reported(capture)
    assert "rank_9: its content belongs to one of the ranks 0-2, its name says 9" in reported(capture)


def test_missing_ranks_are_named() -> None:
    """Whoever left no dump is named, and blamed only for want of anybody else."""
    files = pickled(straggling(4, 1))
    del files["nccl_trace_rank_3"]
    assert blame(files).culprits == (1,)
    assert "no usable dump of rank 3 of 4" in reported(look(files))
    del files["nccl_trace_rank_1"]
    assert set(blame(files).culprits) == {1, 3}
    assert diagnose(look(files)).verdict.summary.endswith("and nothing is known of ranks 1,3.")


def test_a_rank_without_a_dump_that_is_being_torn_down_is_found_by_its_stack() -> None:
    """pytorch#196968: ``destroy_process_group`` no longer answers the others' request for a dump, but py-spy sees it there."""
    files = pickled(straggling(4, 3))
    del files["nccl_trace_rank_3"]
    files["pyspy_rank_3.txt"] = (
        b'Process 4103: python train.py\nThread 4103 (idle): "MainThread"\n'
        b"    destroy_process_group (torch/distributed/distributed_c10d.py:2290)\n"
        b"    main (train.py:88)\n    <module> (train.py:95)\n"
    )
    capture = look(files)
    verdict = diagnose(capture).verdict
    assert (verdict.culprit_ranks, verdict.proven) == ((3,), False)
    assert verdict.cause is not None
    assert verdict.cause.id == "early-exit"
    assert "in destroy_process_group while the others still train" in verdict.cause.explanation
    assert (
        "no usable dump of rank 3 of 4 (a rank leaves none if it has ended or is in destroy_process_group"
        in reported(capture)
    )


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_dumps_of_torchcomms_are_set_aside(form: str) -> None:
    """Keys as torch's, by ``FlightRecorder.cpp`` of torchcomms 0.3: retired when the call returns, no status, one counter.

    Of a job that goes on, as torch's it would show all ranks in their first operation for ever.
    """
    called = [
        entry(at, "all_reduce", at, profiling_name="ncclx:all_reduce", process_group=("world", "ncclx"), retired=True)
        | {"state": "scheduled"}
        for at in range(20)
    ]
    one = dump(called, {"world": ("ncclx", [0, 1])}, "2.10") | {"pg_status": {}}
    data = pickle.dumps(one, protocol=2) if form == "pickle" else msgspec.json.encode(one)
    capture = look({f"comm_lib_trace_rank_{rank}": data for rank in (0, 1)})
    assert capture.ranks == ()
    assert reported(capture).count("torchcomms' recorder does not record whether an operation has completed") == 2


def test_another_jobs_dump_is_set_aside() -> None:
    """Dumps of a smaller job that lie in the same folder accuse nobody, and are named with the reason."""
    files = pickled(straggling(4, 2)) | {f"old/{n}": d for n, d in pickled(straggling(2, 0)).items()}
    capture = look(files)
    assert build_case(capture).blame.culprits == (2,)
    assert "old/nccl_trace_rank_0: it is from another job: it has ranks 0-1, the others have 0-3" in reported(capture)


def test_of_two_dumps_of_a_rank_the_newer_counts() -> None:
    """An earlier dump of a rank, and a poorer one of the same moment, are set aside by name."""
    dumps = straggling(3, 1)
    files = pickled(dumps) | {
        "before/rank_0": pickle.dumps(dump(steps(2, 3), world(3))),
        "thin/rank_2": pickle.dumps(dump(dumps[2]["entries"][-2:], world(3))),
    }
    capture = look(files)
    assert build_case(capture).blame.culprits == (1,)
    assert "before/rank_0: another dump of rank 0: nccl_trace_rank_0 is newer" in reported(capture)
    assert "thin/rank_2: another dump of rank 2: nccl_trace_rank_2 holds at least as much" in reported(capture)


def test_a_dump_of_an_earlier_moment_accuses_nobody() -> None:
    """What others completed together with a rank, it had joined: a dump that says otherwise is older than theirs."""
    dumps = [dump(steps(50, 51), world(4)) for _ in range(3)] + [dump(steps(20, 21), world(4))]
    capture = look(pickled(dumps))
    assert [r.rank for r in capture.ranks] == [0, 1, 2]
    assert (
        "set aside as rank 3's: it is from an earlier moment: others had completed sequence number 50 of default_pg"
        in reported(capture)
    )
    ahead = [dump(steps(20, 21), world(4)) for _ in range(3)] + [dump(steps(50, 51), world(4))]
    assert "nccl_trace_rank_3: set aside as rank 3's: it is from a later moment or another run" in reported(
        look(pickled(ahead))
    )


def test_dumps_of_a_job_that_went_on_between_them_are_not_compared(tmp_path: Path) -> None:
    """Taken one after the other of a job that runs, dumps show no hang, and it is said how to take them."""
    for name, data in pickled(dump(steps(10 * rank), world(5)) for rank in range(1, 6)).items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match="cannot be compared"):
        evidence(tmp_path)


def test_one_local_id_is_two_groups() -> None:
    """Group 1 of ranks 0 and 1 and group 1 of ranks 2 and 3 have nothing to do with each other."""
    dumps = []
    for rank in range(4):
        pair = [0, 1] if rank < 2 else [2, 3]
        entries = [
            entry(seq - 1, "all_reduce", seq, pg_id=1, process_group=("1", "pair"))
            for seq in range(1, 40 if rank < 2 else 4)
        ]
        if rank != 3:
            entries.append(
                entry(60, "broadcast", len(entries) + 1, pg_id=1, process_group=("1", "pair"), state="scheduled")
            )
        dumps.append(dump(entries, {"0": ("default_pg", [0, 1, 2, 3]), "1": ("pair", pair)}))
    found = blame(pickled(dumps))
    assert found.culprits == (3,)


def batch(
    record_id: int, seq: int, names: Iterable[str], state: str, *, as_collective: bool = False
) -> list[dict[str, Any]]:
    """A coalesced batch (``ProcessGroupNCCL.cpp``, torch 2.8: ``pointToPoint``, ``endCoalescing``): its own entries carry no
    events and stay scheduled, one more named ``coalesced`` has the state of the launch and no tensors. Torch 2.12 records
    the launch of sends and receives ``as_collective``, as its dumps show."""
    inner = [entry(record_id + i, name, seq, state="scheduled") for i, name in enumerate(names)]
    p2p = inner[0]["is_p2p"]
    launch = entry(record_id + len(inner), "coalesced", seq, state=state, input_sizes=[], output_sizes=[], is_p2p=p2p)
    launch |= {"collective_seq_id": 0, "p2p_seq_id": seq, "is_p2p": not as_collective} if p2p else {}
    return [*inner, launch]


@pytest.mark.parametrize("as_collective", [False, True])
def test_operations_of_a_finished_batch_are_finished(as_collective: bool) -> None:
    """Entries of coalesced sends stay scheduled for ever; their launch says that they are done, or that they are not."""
    sends = [
        *batch(0, 1, ["send 0->1", "recv 0<-1"], "completed", as_collective=as_collective),
        *batch(3, 2, ["send 0->1", "recv 0<-1"], "scheduled", as_collective=as_collective),
    ]
    answers = batch(0, 1, ["send 1->0", "recv 1<-0"], "completed", as_collective=as_collective)
    found = blame(pickled([dump(sends, world(2)), dump(answers, world(2))]))
    assert (found.culprits, found.waiting) == ((1,), (0,))
    active = [e for e in sends if e["state"] != "completed"]  # what ``onlyActive`` leaves
    capture = look(pickled([dump(active, world(2)), dump(answers, world(2))]))
    pending = [o for o in capture.ranks[0].flight.operations if not o.completed] if capture.ranks[0].flight else []
    assert [(o.op, o.seq) for o in pending] == [("send", 2), ("recv", 2)]


def test_coalesced_collectives_are_compared_as_one() -> None:
    """A batch of all_gathers is one operation with all its tensors: a member that brought another number differs."""
    batches = [batch(0, 1, ["_all_gather_base"] * (2 if rank else 3), "scheduled") for rank in range(3)]
    capture = look(pickled([dump(one, world(3)) for one in batches]))
    operation = capture.ranks[0].flight.operations[0] if capture.ranks[0].flight else None
    assert operation is not None
    assert (operation.op, operation.input_sizes, operation.completed) == ("all_gather", ((8,), (8,), (8,)), False)
    verdict = diagnose(capture).verdict
    assert verdict.culprit_ranks == (0,)


def test_a_ring_that_wrapped_accuses_nobody() -> None:
    """Without a status (version 2.0), a group that the ring has lost is not one that was never used."""
    pair = {"0": ("default_pg", [0, 1]), "1": ("pair", [0, 1])}
    old = [entry(i, "all_reduce", i + 1, pg_id=1, process_group=("1", "pair")) for i in range(3)]
    new = [entry(100 + i, "all_reduce", 101 + i, state="completed" if i < 5 else "scheduled") for i in range(6)]
    one = dump([*old, entry(99, "broadcast", 4, pg_id=1, process_group=("1", "pair"), state="scheduled")], pair, "2.0")
    other = dump(new, pair, "2.0")
    case = build_case(look(pickled([one, other])))
    pair_group = next(group for group in case.history.groups.values() if group.label == "pair")
    assert case.history.enqueued(0, pair_group.key) == 4
    assert case.history.enqueued(1, pair_group.key) is None


def test_nccl_timeouts_are_not_completions() -> None:
    """An entry that is retired without having completed has timed out (``FlightRecorder.hpp``: ``retired_``)."""
    dumps = straggling(2, 1)
    dumps[0]["entries"][-1]["retired"] = True
    assert blame(pickled(dumps)).culprits == (1,)


def test_an_operation_that_has_just_begun_is_no_wait(tmp_path: Path) -> None:
    """Where the files' times show that the dump followed the last operation at once, the job ran; later copies prove nothing."""
    for name, data in pickled(straggling(3, 1)).items():
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, ns=(BEGAN_NS + 900_000_000,) * 2)
    young = evidence(tmp_path)
    assert diagnose(young.capture, min_wait_s=young.min_wait_s).verdict.kind == "healthy"
    os.utime(tmp_path / "nccl_trace_rank_0", ns=(BEGAN_NS + 90_000_000_000,) * 2)
    old = evidence(tmp_path)
    assert diagnose(old.capture, min_wait_s=old.min_wait_s).verdict.culprit_ranks == (1,)


def _gloo(seq: int, *, retired: bool, came_s: float = 0.0) -> dict[str, Any]:
    """An entry of Gloo's, which stays ``scheduled``; its rank came to it ``came_s`` after the first one did."""
    at_ns = BEGAN_NS + int(came_s * 1e9)
    named = {"profiling_name": "gloo:all_reduce", "state": "scheduled"}
    return entry(seq - 1, "all_reduce", seq, retired=retired, time_created_ns=at_ns, **named)


@pytest.mark.parametrize(
    ("came_s", "retired", "taken_s", "kind"),
    [
        ((0.0, 0.0, 0.0), (False, False, False), None, "healthy"),
        ((0.0, 0.0, 0.0), (True, True, False), None, "healthy"),
        ((0.0, 0.0, 30.0), (False, False, False), 30.5, "healthy"),
        ((0.0, 0.0, 30.0), (True, False, True), 30.5, "healthy"),
        ((0.0, 0.0, 30.0), (False, False, False), 60.0, "stall"),
        ((0.0, 0.0, 30.0), (True, False, True), 60.0, "stall"),
    ],
)
def test_what_all_have_joined_is_a_hang_only_if_that_was_long_ago(
    tmp_path: Path, came_s: tuple[float, ...], retired: tuple[bool, ...], taken_s: float | None, kind: str
) -> None:
    """Gloo's recorder learns late that an operation is done, and not all files say when they were taken: it may be running."""
    ranks = (
        dump([_gloo(1, retired=True), _gloo(2, retired=done, came_s=at_s)], world(3))
        for at_s, done in zip(came_s, retired, strict=True)
    )
    for name, data in pickled(ranks).items():
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, ns=((BEGAN_NS + int(taken_s * 1e9)) if taken_s is not None else 0,) * 2)
    found = evidence(tmp_path)
    verdict = diagnose(found.capture, min_wait_s=found.min_wait_s).verdict
    assert verdict.kind == kind
    said = "all_reduce of default_pg (sequence number 2) may be in progress"
    assert (said in verdict.summary) == (kind == "healthy")


def evidence(path: Path) -> Artifacts:
    """What is at a path."""
    return read_artifacts(path, _no_progress)


def _tar(files: Mapping[str, bytes], pack: Callable[[bytes], bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return pack(raw.getvalue())


def _zip(files: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return raw.getvalue()


@pytest.mark.parametrize("packing", ["tar", "tar.gz", "tar.xz", "zip", "gz", "folder", "nested"])
def test_packings(tmp_path: Path, packing: str) -> None:
    """A tar, plain or compressed, a zip, single compressed files, folders and archives in folders hold the same."""
    files = pickled(straggling(3, 1))
    path = tmp_path / "dumps"
    if packing in {"gz", "folder"}:
        path.mkdir()
        for name, data in files.items():
            (path / name).with_suffix(".gz" if packing == "gz" else "").write_bytes(
                gzip.compress(data) if packing == "gz" else data
            )
    elif packing == "nested":
        (path / "node0").mkdir(parents=True)
        (path / "node0" / "all.tar.gz").write_bytes(_tar(files, gzip.compress))
        (path / "notes.txt").write_text("nothing of interest")
    else:
        pack = {"tar": bytes, "tar.gz": gzip.compress, "tar.xz": lzma.compress}.get(packing)
        path.write_bytes(_zip(files) if pack is None else _tar(files, pack))
    found = evidence(path)
    assert build_case(found.capture).blame.culprits == (1,)
    assert ("notes.txt" in reported(found.capture)) == (packing == "nested")


def test_what_is_broken_is_named_and_the_rest_analysed(tmp_path: Path) -> None:
    """A cut dump, an empty one, a hostile one, a FIFO and an archive that breaks off cost nothing but themselves."""
    files = pickled(straggling(6, 1))
    cut = files.pop("nccl_trace_rank_3")
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "nccl_trace_rank_3").write_bytes(cut[: len(cut) // 2])
    (tmp_path / "nccl_trace_rank_4").write_bytes(b"")
    (tmp_path / "nccl_trace_rank_5").write_bytes(b"\x80\x02cposix\nsystem\n.")
    (tmp_path / "more.tar.gz").write_bytes(_tar(files, gzip.compress)[:150])
    os.mkfifo(tmp_path / "fifo")
    capture = evidence(tmp_path).capture
    assert build_case(capture).blame.culprits == (1,)
    for says in (
        "nccl_trace_rank_3: the pickle is truncated", "nccl_trace_rank_4: it is empty", "nccl_trace_rank_5: the pickle "
        "asks for posix.system", "more.tar.gz: it is damaged", "fifo: it cannot be read: it is not a regular file",
        "no usable dump of ranks 3-5 of 6",
    ):  # fmt: skip
        assert says in reported(capture)


def test_members_cannot_leave_the_archive(tmp_path: Path) -> None:
    """Names of members are labels: nothing is written, links are not followed."""
    files = {"../../escape_rank_0": pickle.dumps(straggling(2, 1)[0]), "/abs/rank_1": pickle.dumps(straggling(2, 1)[1])}
    raw = io.BytesIO(_tar(files, bytes))
    with tarfile.open(fileobj=raw, mode="a") as archive:
        link = tarfile.TarInfo("rank_2")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    (tmp_path / "x.tar").write_bytes(raw.getvalue())
    before = sorted(tmp_path.rglob("*"))
    capture = evidence(tmp_path / "x.tar").capture
    assert build_case(capture).blame.culprits == (1,)
    assert "rank_2: it is not a regular file" in reported(capture)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("make", ["absent", "empty", "rubbish", "launcher"])
def test_nothing_usable_is_one_line(tmp_path: Path, make: str) -> None:
    """Nothing there, nothing in it, nothing that can be read: one line says so and what to give."""
    path = tmp_path / "given"
    if make != "absent":
        path.mkdir()
    if make == "rubbish":
        (path / "rank_0").write_bytes(random.Random(1).randbytes(500))
    if make == "launcher":
        frame = "    _invoke_run (torch/distributed/elastic/agent/server/api.py:880)\n"
        (path / "rank_0").write_text(f'Process 7: torchrun\nPython v3.11\n\nThread 7 (idle): "MainThread"\n{frame}')
    with pytest.raises(UserError) as caught:
        evidence(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_dumps_in_which_no_rank_has_recorded_anything_are_no_evidence_of_health(tmp_path: Path) -> None:
    """A first collective that never completes leaves such: NCCL connects all ranks before it is recorded."""
    for name, data in pickled([dump([], world(2)), dump([], world(2))]).items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match="contain no operation"):
        read_artifacts(tmp_path, _no_progress)


def test_a_rank_that_recorded_nothing_is_named() -> None:
    """It is the culprit where others wait for it, and of ranks that wait for none it is not said that all move."""
    waited_for = look(pickled([dump(steps(0, 1), world(2)), dump([], world(2))]))
    assert "rank 1 recorded no operation (the rank may be in its first collective" in reported(waited_for)
    assert diagnose(waited_for).verdict.culprit_ranks == (1,)
    quiet = look(pickled([dump(steps(0), world(2)), dump([], world(2))]))
    assert diagnose(quiet).verdict.summary.startswith("No hang found: the records show no operation in flight.")


def test_both_sides_have_the_lines_that_their_dumps_have() -> None:
    """Of the side that waits the call it is in; of the other, which is in none, the last one on its record."""

    def called(line: int) -> dict[str, Any]:
        return {"frames": [{"name": "train", "filename": "/srv/train/train.py", "line": line}]}

    done = [entry(0, "all_reduce", 1, **called(30)), entry(1, "all_gather", 2, **called(31))]
    waits = [*done, entry(2, "all_reduce", 3, state="scheduled", **called(30))]
    found = diagnose(look(pickled([dump(waits, world(2)), dump(done, world(2))]))).verdict.divergence
    assert found is not None
    assert found.culprit is not None
    assert found.others is not None
    assert (found.culprit.line, found.culprit_op) == (31, "no operation since all_gather of Float[8]")
    assert (found.others.line, found.others_op) == (30, "all_reduce of Float[8]")
