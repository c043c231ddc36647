"""Flight-recorder dumps of every version and backend become one record; what is none is a typed error."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress
from hangwatch.sources.flight.entries import parse_peer, split_name
from hangwatch.sources.flight.groups import parse_ranks
from hangwatch.sources.flight.pickles import FlightFormatError, load_pickle
from hangwatch.sources.flight.recorder import merge_flights, parse_flight, progress_of
from hangwatch.sources.flight.transport import decode_newest, parse_http_body

NVRX = Path(__file__).resolve().parents[3] / "shared" / "data" / "nvrx-fr"


def entry(**changes: Any) -> dict[str, Any]:
    """A Gloo entry as torch 2.13 has it in the pickle."""
    fields: dict[str, Any] = {
        "frames": [
            {"name": "all_reduce", "filename": "/torch/distributed_c10d.py", "line": 9},
            {"name": "main", "filename": "/srv/train.py", "line": 5},
        ],
        "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "thread_name": "python3", "thread_id": "1",
        "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "profiling_name": "gloo:all_reduce",
        "time_created_ns": 1795229684528267258, "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
        "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": True, "timeout_ms": 1800000, "is_p2p": False,
    }  # fmt: skip
    return fields | changes


def gloo_dump(*entries: dict[str, Any], **status: tuple[int, int, int]) -> dict[str, Any]:
    """A dump as torch 2.13 writes it for Gloo."""
    return {
        "version": "2.10",
        "comm_lib_version": "",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
        "pg_status": {
            key.lstrip("_"): dict(
                zip(
                    ("last_enqueued_collective", "last_started_collective", "last_completed_collective"),
                    value,
                    strict=True,
                )
            )
            for key, value in status.items()
        },
        "entries": list(entries),
    }


def parse(dump: Any, **options: Any) -> FlightRecord:
    """Parsed as the one rank's that is looked at."""
    return parse_flight(dump, at_ns=7, source="pickle", **options)


@pytest.mark.parametrize(
    ("written", "thread"),
    [
        ("140085430970112", 140085430970112), (140085430970112, 140085430970112), ("0x16b4", 0), (None, 0), (-5, 0),
        (1 << 70, 0), ([], 0),
    ],
)  # fmt: skip
def test_the_thread_that_called_is_a_number_or_not_known(written: object, thread: int) -> None:
    """It is text in both forms of a dump; of another C library it may be anything."""
    record = parse(gloo_dump(entry(thread_id=written), entry(record_id=1, collective_seq_id=2, thread_id="7")))
    assert [o.thread for o in record.operations] == [thread, 7]


def test_gloo_completed_is_retired() -> None:
    """Finished Gloo operations stay scheduled; retired is what tells. Order is by record id."""
    record = parse(gloo_dump(entry(record_id=2, collective_seq_id=2, retired=False), entry(), _0=(2, -1, 1)))
    assert [(o.seq, o.completed, o.started) for o in record.operations] == [(1, True, True), (2, False, False)]
    assert record.progress == (GroupProgress(Group("0", (), "default_pg"), 2, -1, 1),)
    assert record.version == "2.10"
    assert record.operations[0].frames is not None
    assert [(f.function, f.line) for f in record.operations[0].frames] == [("all_reduce", 9), ("main", 5)]
    assert record.operations[0].backend == "gloo"
    assert record.operations[0].input_sizes == ((4,),)
    assert record.operations[0].timeout_ms == 1800000
    assert record.operations[0].thread == 1


def test_json_form_is_the_same_but_for_call_sites() -> None:
    """Numbers as text, lists for tuples, and no frames."""
    dump = gloo_dump(entry(), _0=(1, -1, 1))
    plain = msgspec.json.decode(msgspec.json.encode(dump))
    del plain["entries"][0]["frames"]
    for status in plain["pg_status"].values():
        status.update({name: str(number) for name, number in status.items()})
    from_json, from_pickle = parse(plain), parse(dump)
    assert from_json.progress == from_pickle.progress
    assert from_json.operations == tuple(msgspec.structs.replace(o, frames=None) for o in from_pickle.operations)


def test_membership_comes_from_the_beat() -> None:
    """Where the dump knows no members the rank's own groups do, by id and name; unused groups have progress 0."""
    groups = [
        BeatGroup("0", (0, 1, 2), pg_id=0, description="default_pg"),
        BeatGroup("1", (0, 2), pg_id=1, description="undefined"),
        BeatGroup("2", (0, 1), pg_id=5),
        BeatGroup("3", (0,)),
    ]
    dump = gloo_dump(entry(pg_id=1, process_group=("1", "undefined")), _0=(9, -1, 9), _1=(1, -1, 1))
    record = parse(dump, beat_groups=groups)
    assert record.operations[0].group == Group("1", (0, 2), "undefined")
    assert record.progress == (
        GroupProgress(Group("0", (0, 1, 2), "default_pg"), 9, -1, 9),
        GroupProgress(Group("1", (0, 2), "undefined"), 1, -1, 1),
        GroupProgress(Group("2", (0, 1)), 0, -1, 0),
    )


def test_unused_group_is_reported_only_when_sure() -> None:
    """A group the beat knows as unused has progress 0, unless a status that nobody can name may be its own."""
    groups = [BeatGroup("0", (0, 1), pg_id=0, enqueued=1), BeatGroup("1", (0, 1), enqueued=0), BeatGroup("2", (0, 1))]
    sure = parse(gloo_dump(entry(), _0=(1, -1, 1)), beat_groups=groups)
    assert [(p.group.name, p.enqueued) for p in sure.progress] == [("0", 1), ("1", 0)]
    unsure = parse(gloo_dump(entry(), _0=(1, -1, 1), _1=(2, -1, 1)), beat_groups=groups)
    assert [(p.group.name, p.enqueued) for p in unsure.progress] == [("0", 1)]


def test_status_of_an_unknown_group_is_left_out() -> None:
    """A status nobody can name is compared with nothing; the default group's members follow from the world's size."""
    record = parse(gloo_dump(entry(), _0=(1, -1, 1), _4=(3, -1, 3)), world_size=3)
    assert [progress.group for progress in record.progress] == [Group("0", (0, 1, 2), "default_pg")]


def test_nccl_config_names_groups_without_entries() -> None:
    """Ids and names both count up: as many of each, and nothing against it, pairs them."""
    dump = gloo_dump(entry(pg_id=4, process_group=("33", "tp")), _0=(5, -1, 5), _4=(1, -1, 0))
    dump["pg_config"] = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"},
        "33": {"name": "33", "desc": "tp", "ranks": [0, 1]},
    }
    assert [(p.group.name, p.group.ranks, p.enqueued) for p in parse(dump).progress] == [
        ("0", (0, 1), 5),
        ("33", (0, 1), 1),
    ]
    dump["entries"][0]["process_group"] = ("0", "default_pg")
    assert [p.group.name for p in parse(dump).progress] == ["0"]


def test_peers_are_global_ranks() -> None:
    """A send's peer is a rank within its group; the group's members make it global. Its numbers are point-to-point's."""
    groups = [BeatGroup("1", (2, 5, 7), pg_id=1)]
    send = entry(
        pg_id=1,
        process_group=("1", "pp"),
        profiling_name="nccl:send 0->2",
        is_p2p=True,
        p2p_seq_id=4,
        collective_seq_id=9,
    )
    record = parse(gloo_dump(send, _1=(4, -1, 3)), beat_groups=groups)
    assert (record.operations[0].op, record.operations[0].peer, record.operations[0].seq) == ("send", 7, 4)
    assert record.progress[0].mixed
    unknown = parse(gloo_dump(send, _1=(4, -1, 3)))
    assert unknown.operations[0].peer is None


def test_older_dumps() -> None:
    """Dumps without entries, without a status, with one sequence number, from before their groups had names."""
    assert parse({"version": "2.10", "pg_config": {}, "pg_status": {}}).operations == ()
    old = entry(seq_id=3, state="completed", retired=False, process_group=None)
    del old["collective_seq_id"], old["is_p2p"]
    pending = entry(record_id=1, seq_id=4, state="started", retired=False, process_group=None)
    del pending["collective_seq_id"], pending["is_p2p"]
    record = parse({"version": "2.0", "entries": [old, pending]})
    assert [(o.group.name, o.seq, o.completed, o.started) for o in record.operations] == [
        ("0", 3, True, True),
        ("0", 4, False, True),
    ]
    assert [(p.enqueued, p.completed) for p in record.progress] == [(4, 3)]


def test_bad_entries_are_counted() -> None:
    """One entry that cannot be used does not cost the others."""
    bad = [
        None,
        {},
        entry(profiling_name=5),
        entry(input_sizes=[["x"]]),
        entry(record_id=None),
        entry(process_group=None, pg_id=None),
    ]
    record = parse(gloo_dump(entry(), *bad, _0=(1, -1, 1)))
    assert (len(record.operations), record.dropped) == (1, len(bad))


@pytest.mark.parametrize("dump", [None, [], {}, {"entries": 5}, {"a": 1}])
def test_what_is_no_dump_is_a_typed_error(dump: Any) -> None:
    """Input that is something else raises one error that says so."""
    with pytest.raises(FlightFormatError):
        parse(dump)


@pytest.mark.parametrize(
    ("name", "backend", "op"),
    [
        ("nccl:_all_gather_base", "nccl", "all_gather"),
        ("nccl:_allgather_base", "nccl", "all_gather"),
        ("nccl:_reduce_scatter_base", "nccl", "reduce_scatter"),
        ("nccl:all_gather_into_tensor_coalesced", "nccl", "all_gather_into_tensor_coalesced"),
        ("nccl:allreduce_coalesced", "nccl", "all_reduce_coalesced"),
        ("nccl:gather_single", "nccl", "gather"),
        ("nccl:all_reduce_barrier", "nccl", "barrier"),
        ("nccl:recv 0<-3", "nccl", "recv"),
        ("nccl:coalesced", "nccl", "coalesced"),
        ("gloo:barrier", "gloo", "barrier"),
        ("broadcast", "", "broadcast"),
        ("nccl:", "nccl", "unknown"),
    ],
)
def test_operation_names_are_the_programs(name: str, backend: str, op: str) -> None:
    """Internal variants read as what the program called."""
    assert split_name(name) == (backend, op)


def test_small_parsers() -> None:
    """Ranks and peers come from bounded text, never from evaluation."""
    assert parse_ranks("[0, 12]") == (0, 12)
    assert parse_ranks("[]") == ()
    assert parse_ranks([3, 4]) == (3, 4)
    for other in ("[0, -1]", "__import__('os')", "[0", None, [True], ["1"], 5):
        assert parse_ranks(other) == ()
    assert parse_peer("nccl:send 0->3") == 3
    assert parse_peer("nccl:recv 0<-3") == 3
    assert parse_peer("nccl:all_reduce") is None


def test_records_of_two_backends_are_merged_by_time() -> None:
    """A rank with a recorder for each backend has one record in order of creation; a group in both says so."""
    gloo = parse(gloo_dump(entry(record_id=8, time_created_ns=5), _0=(1, -1, 1)))
    nccl = parse(gloo_dump(entry(record_id=2, time_created_ns=9, profiling_name="nccl:all_reduce"), _0=(4, -1, 4)))
    merged = merge_flights([nccl, gloo])
    assert [(o.record_id, o.backend) for o in merged.operations] == [(0, "gloo"), (1, "nccl")]
    assert all(progress.mixed for progress in merged.progress)
    assert merge_flights([gloo]) is gloo


def test_progress_of_a_beat() -> None:
    """Known numbers are progress, 0 among them; unknown ones are left out."""
    groups = (
        BeatGroup("0", (0, 1), pg_id=0, enqueued=5, completed=4),
        BeatGroup("1", (0,), enqueued=0),
        BeatGroup("2", (0,)),
    )
    beat = Beat(1, 1, 1, 1, 1, groups=groups)
    assert progress_of(beat) == (GroupProgress(Group("0", (0, 1)), 5, -1, 4), GroupProgress(Group("1", (0,)), 0, -1, 0))


class Exploit:
    """Unpickling it would run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, ("false",)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (pickle.dumps(Exploit()), "system"),
        (pickle.dumps(Path), "pathlib"),
        (pickle.dumps(set), "builtins.set"),
        (b"Pevil\n.", "persistent"),
        (b"", "is truncated"),
        (b"\x80\x02}q\x01(X", "is truncated"),
        (b"{not a pickle}", "not a pickle"),
        (b"(i__main__\nExploit\n.", "__main__"),
    ],
)
def test_pickles_of_more_than_plain_data_are_refused(data: bytes, says: str) -> None:
    """A pickle that names anything is refused before it is looked up, and the refusal names it."""
    with pytest.raises(FlightFormatError, match=says):
        load_pickle(data)


def test_plain_pickles_are_loaded() -> None:
    """Containers, strings, bytes and numbers come through in all protocols."""
    value = {"a": [1, 2.5, None, True, ("x", b"y")], "big": 2**80}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        if protocol > 2 or b"_codecs" not in pickle.dumps(value, protocol):
            assert load_pickle(pickle.dumps(value, protocol)) == value


@given(st.binary(max_size=200), st.integers(0, 400))
def test_hostile_pickles_raise_one_error(data: bytes, cut: int) -> None:
    """Random bytes and cut dumps are loaded or refused, and never anything else."""
    for hostile in (data, b"\x80\x02" + data, pickle.dumps(gloo_dump(entry()), 2)[:cut]):
        try:
            load_pickle(hostile)
        except FlightFormatError:
            continue


_junk = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["0", "send 0->9"])
    ),
    lambda children: st.one_of(
        st.lists(children, max_size=3), st.dictionaries(st.text(max_size=6), children, max_size=3)
    ),
    max_leaves=6,
)
_entries = st.builds(entry, **dict.fromkeys(entry(), _junk)) | _junk  # type: ignore[arg-type]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "version": _junk,
            "pg_config": _junk,
            "pg_status": _junk,
            "entries": st.lists(_entries, max_size=3) | _junk,
        },
    ),
)
def test_hostile_dumps_raise_one_error(dump: dict[str, Any]) -> None:
    """A dump with anything anywhere is a record or a typed error."""
    try:
        record = parse(dump)
    except FlightFormatError:
        return
    assert record.dropped >= 0


@given(st.permutations([entry(record_id=i, collective_seq_id=i + 1, retired=i < 3) for i in range(5)]))
def test_order_of_entries_does_not_matter(entries: list[dict[str, Any]]) -> None:
    """A ring's entries may come in any order."""
    record = parse(gloo_dump(*entries, _0=(5, -1, 3)))
    assert [o.seq for o in record.operations] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n", b"{}"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", None),
        (b"{}", None),
        (b"", None),
    ],
)
def test_answers_of_the_worker_server(answer: bytes, body: bytes | None) -> None:
    """Whole answers give their body; refusals and cut ones are errors."""
    if body is not None:
        assert parse_http_body(answer) == body
        return
    with pytest.raises(FlightFormatError):
        parse_http_body(answer)


@pytest.mark.parametrize(
    ("last", "ids"), [(-1, [5, 6, 7]), (4, [5, 6, 7]), (6, [7]), (7, []), (2, [5, 6, 7]), (9, [5, 6, 7])]
)
def test_only_what_is_new_is_decoded(last: int, ids: list[int]) -> None:
    """After the last known operation; all of them once torch has begun to count anew."""
    data = msgspec.json.encode({"version": "2.10", "entries": [{"record_id": at, "state": "x"} for at in (5, 6, 7)]})
    dump, count = decode_newest(data, last)
    assert count == 3
    assert dump == {"version": "2.10", "entries": [{"record_id": at, "state": "x"} for at in ids]}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"entries": 1}', b'{"entries": [{}]}', b'{"entries": [{"record_id": "x"}]}']
)
def test_new_entries_of_damaged_answers(data: bytes) -> None:
    """One typed error."""
    with pytest.raises(FlightFormatError):
        decode_newest(data, -1)


def test_new_entries_of_nothing() -> None:
    """A record without entries."""
    assert decode_newest(b"{}", -1) == ({"entries": []}, 0)


@pytest.mark.skipif(
    not NVRX.is_dir(), reason="needs NVRx's 16-rank NCCL dumps, which lie beside the repository where they are"
)
@pytest.mark.parametrize("fault", ["gpu_error_1st", "lock_gil_1st"])
def test_real_nccl_dumps(fault: str) -> None:
    """All ranks of a real Megatron job: nothing dropped, every group named, every peer and member a global rank."""
    for rank in range(16):
        dump = load_pickle((NVRX / fault / f"_dump_{rank}").read_bytes())
        assert isinstance(dump, dict)
        record = parse_flight(dump, at_ns=0, source="file")
        assert record.dropped == 0
        assert len(record.operations) == len(dump.get("entries", ()))
        assert len(record.progress) == len(dump["pg_status"])
        assert all(rank in progress.group.ranks for progress in record.progress)
        assert all(rank in operation.group.ranks for operation in record.operations)
        assert all(o.peer in o.group.ranks and o.peer != rank for o in record.operations if o.p2p)
        numbers = {p.group.name: p.enqueued for p in record.progress}
        for one in dump.get("entries", ()):
            assert numbers[one["process_group"][0]] == dump["pg_status"][str(one["pg_id"])]["last_enqueued_collective"]
