"""NCCL RAS: both of its reports, several jobs behind one address, processes that do not answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.hardware.sources.ras import report as ras
from hangwatch.hardware.sources.ras.ras_json import RasFormatError, parse_status_json
from hangwatch.hardware.sources.ras.ras_text import parse_status_text
from hangwatch.hardware.sources.ras.report import Ras, RasError, map_ranks, parse_address
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.devices import NodeFacts
from hangwatch.sources.discovery.rank_processes import RankProcess
from ras_server import missing, rank, report_json, report_text, serve
from support import find_free_port

#: Rank N has pid 100 + N outside, and 10 + N in its own pid namespace.
RANKS = tuple(RankProcess(RankIdentity(n, 100 + n, 1.0), 10 + n, {}) for n in range(4))
EVEN = report_json([rank(n, 10 + n, {"AllReduce": 7}) for n in range(4)])


def at(address: str, **variables: str) -> list[RankProcess]:
    """The ranks with an address of their own in their environment."""
    reported = {"NCCL_RAS_ADDR": address, **variables}
    return [RankProcess(r.identity, r.namespace_pid, reported) for r in RANKS]


def look(ranks: list[RankProcess]) -> NodeFacts:
    """What the source says."""
    found = Ras().read(ranks)
    assert isinstance(found, NodeFacts), found
    return found


@pytest.mark.usefixtures("real")
def test_structured_report_is_mapped_to_the_ranks() -> None:
    """Communicator ranks become global ranks by host and the process's own pid."""
    with serve(lambda _, json: EVEN if json else report_text()) as address:
        (report,) = look(at(address)).ras
    assert (report.nccl_version, report.problems) == ("2.30.7", ())
    (communicator,) = report.communicators
    assert [(r.rank, r.place, r.state, r.counts["AllReduce"]) for r in communicator.ranks] == [
        (n, n, "running", 7) for n in range(4)
    ]


@pytest.mark.usefixtures("real")
def test_two_reports_tell_who_still_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2's count grows between them, and those of the others stand still."""
    monkeypatch.setattr(ras, "WINDOW_S", 0.01)

    def answer(number: int, _json: bool) -> bytes:
        return report_json([rank(n, 10 + n, {"AllReduce": 7 + number * (n == 2)}) for n in range(4)])

    with serve(answer) as address:
        ((communicator,),) = (r.communicators for r in look(at(address)).ras)
    assert communicator.launching == (2,)
    assert communicator.window_s > 0


@pytest.mark.usefixtures("real")
def test_job_that_ends_between_two_reports_leaves_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no second answer: nothing is said of what was launched meanwhile."""
    monkeypatch.setattr(ras, "GREETING_TIMEOUT_S", 0.1)
    with serve(lambda number, _: EVEN if number == 0 else None, greets=lambda number: number == 0) as address:
        ((communicator,),) = (r.communicators for r in look(at(address)).ras)
    assert (communicator.launching, communicator.window_s, communicator.size) == ((), 0.0, 4)


@pytest.mark.usefixtures("real")
def test_older_nccl_answers_in_text() -> None:
    """Before 2.28.7 there is no SET FORMAT: the text report is read, and its dead processes are known by pid."""
    dead = (
        "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        "  Process 13 on node 127.0.0.1 managing GPU 3\n\n"
    )
    behind = (
        "#0-0 (006e6fb2fa5a3b1c) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  3 ranks have launched up to operation 12\n"
        "  Rank 2 has launched up to operation 11 -- GPU 2 managed by process 12 on node 127.0.0.1\n\n"
    )
    with serve(lambda *_: report_text(dead, behind), structured=False) as address:
        (report,) = look(at(address)).ras
    assert report.nccl_version == "2.24.3"
    assert [(p.kind, p.ranks) for p in report.problems] == [("dead", (3,)), ("mismatch", (2,))]
    assert report.problems[1].says.startswith("communicator 0x6e6fb2fa5a3b1c: ")
    assert "launched up to operation 11" in report.problems[1].says


def test_problems_are_those_that_nccl_would_list() -> None:
    """Dead, silent and absent ranks, errors, states and counts that differ."""
    data = report_json(
        [
            rank(0, 10, {"AllReduce": 12}),
            rank(1, 11, {"AllReduce": 12}, async_error=6),
            rank(2, 12, {"AllReduce": 11}, abort_flag=True),
            rank(3, 13, {"AllReduce": 12}),
        ],
        [missing(4, 14, True, True), missing(5, 15, True, False), missing(6, 16, False, False)],
        timeouts=2,
    )
    problems = parse_status_json(data, "a:1").problems
    assert [(p.kind, tuple(pid for _, pid in p.processes)) for p in problems] == [
        ("dead", (14,)), ("incomplete", (15,)), ("mismatch", (16,)), ("error", (11,)), ("mismatch", (12,)),
        ("mismatch", (12,)), ("timeout", ()),
    ]  # fmt: skip
    assert "launched 11 AllReduce, 3 others 12" in problems[5].says
    assert "remote process error" in problems[3].says


@pytest.mark.usefixtures("real")
def test_another_jobs_answer_is_not_taken() -> None:
    """Processes of several jobs share an address: the kernel picks one, so it is asked again until the right one answers."""
    theirs = report_json([rank(0, 900)])
    with serve(lambda number, _: EVEN if number == 3 else theirs) as address:
        assert look(at(address)).ras[0].communicators[0].size == 4
    with serve(lambda *_: theirs) as address:
        found = Ras().read(at(address))
    assert isinstance(found, Gap)
    assert "another job answered" in found.reason


@pytest.mark.usefixtures("real")
def test_a_stopped_process_does_not_keep_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that a stopped process accepted is given up for a new one."""
    monkeypatch.setattr(ras, "GREETING_TIMEOUT_S", 0.2)
    with serve(lambda *_: EVEN, greets=lambda number: number > 1) as address:
        assert look(at(address)).ras[0].communicators[0].size == 4


@pytest.mark.usefixtures("real")
def test_a_report_that_never_comes_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL may greet and then wait for its peers for ever."""
    monkeypatch.setattr(ras, "_REPORT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(ras, "_ATTEMPTS", 2)
    with serve(lambda *_: None) as address:
        found = Ras().read(at(address))
    assert isinstance(found, Gap)
    assert "did not answer" in found.reason


@pytest.mark.usefixtures("real")
def test_nobody_there_is_a_gap_and_switched_off_is_not() -> None:
    """An old NCCL has no such server; a job may have switched it off."""
    address = f"127.0.0.1:{find_free_port()}"
    found = Ras().read(at(address))
    assert isinstance(found, Gap)
    assert "nobody listens" in found.reason
    assert "2.24" in found.hint
    off = look(at(address, NCCL_RAS_ENABLE="0"))
    assert [a.says for a in off.absent] == ["switched off by NCCL_RAS_ENABLE=0"]


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ("localhost:28028", ("localhost", 28028)),
        ("[::1]:9", ("::1", 9)),
        ("[fe80::1%eth0]:9", ("fe80::1", 9)),
        ("0.0.0.0:5", ("127.0.0.1", 5)),
    ],
)
def test_addresses_as_nccl_takes_them(reported: str, found: tuple[str, int]) -> None:
    """Names, both families, an interface behind, and the address that means all."""
    assert parse_address(reported) == found


@pytest.mark.parametrize("reported", ["localhost", ":5", "a:b", "a:99999", ""])
def test_addresses_that_are_none(reported: str) -> None:
    """One line says what is wrong with it."""
    with pytest.raises(RasError, match="not HOST:PORT"):
        parse_address(reported)


@pytest.mark.parametrize("named", ["192.0.2.1:80", "metadata.example.org:80", "[2001:db8::1]:443"])
def test_a_job_sends_us_to_no_other_machine(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """Whoever starts a rank writes its environment, and the agent may be root in another network than the job's."""
    monkeypatch.setattr(ras.socket, "create_connection", lambda *_: pytest.fail("connected"))
    found = Ras().read(at(named))
    assert isinstance(found, Gap)
    assert "is not on this node" in found.reason


def test_ranks_of_other_hosts_are_not_ours() -> None:
    """The same pid on another machine is another process."""
    report = map_ranks(parse_status_json(EVEN, "a:1"), RANKS, frozenset({"10.0.0.9"}))
    assert {r.rank for r in report.communicators[0].ranks} == {None}


@given(st.binary(max_size=300))
def test_hostile_reports_raise_one_error(data: bytes) -> None:
    """Whatever listens there, only one error comes of it."""
    for parse in (parse_status_json, parse_status_text):
        for given_data in (data, EVEN[: len(data)] + data, report_text()[: len(data) * 3] + data):
            try:
                parse(given_data, "a:1")
            except RasFormatError:
                continue
