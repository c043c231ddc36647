"""NCCL RAS's JSON report. Pure. Format: ``rasDumpCommsToJSON`` in ``src/ras/client_support.cc``, NCCL 2.28.7 to 2.30.7.

May import hangwatch.model and msgspec. The numbers of states and errors are ``ncclResult_t`` of ``nccl.h``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from hangwatch.model.devices import Communicator, CommunicatorRank, RasProblem, RasReport

_SUCCESS, _IN_PROGRESS = 0, 7
_ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process error",
    8: "timeout",
}
#: NCCL 2.28.9 leaves out the comma between these two of a rank that is missing (``tests/fixtures/gpu/ras_stopped.json``).
_NO_COMMA = re.compile(rb'("nvml_dev": -?\d+)(\s+"status":)')
#: Up to how many ranks with one problem are named singly.
_NAMED = 8


class RasFormatError(ValueError):
    """The answer is no RAS report; the message is one line for people."""


class _State(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str
    pid: int
    status: _State
    collective_counts: dict[str, int] = {}


class _MissingState(msgspec.Struct):
    unresponsive: bool = False
    considered_dead: bool = False


class _Missing(msgspec.Struct):
    rank: int
    host: str
    pid: int
    status: _MissingState


class _Communicator(msgspec.Struct):
    hash: str
    size: int
    ranks: list[_Rank] = []
    missing_ranks: list[_Missing] = []


class _Ras(msgspec.Struct):
    timeouts_count: int = 0


class _Report(msgspec.Struct):
    communicators: list[_Communicator]
    nccl_version: str = ""
    ras: _Ras = msgspec.field(default_factory=_Ras)


def parse_status_json(data: bytes, address: str) -> RasReport:
    """Return the report as communicators and problems. Raises ``RasFormatError``."""
    try:
        report = msgspec.json.decode(_NO_COMMA.sub(rb"\1,\2", data), type=_Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RasFormatError(f"the report cannot be read: {error}") from None
    communicators = tuple(_communicator(c) for c in report.communicators)
    problems = [problem for c in communicators for problem in find_problems(c)]
    if report.ras.timeouts_count:
        problems.append(RasProblem("timeout", f"{report.ras.timeouts_count} peers did not answer NCCL in time"))
    return RasReport(address, report.nccl_version, communicators, tuple(problems))


def _communicator(raw: _Communicator) -> Communicator:
    ranks = [
        CommunicatorRank(
            place=r.rank,
            host=r.host,
            pid=r.pid,
            state=_state(r.status),
            error=_error(r.status),
            counts=r.collective_counts,
        )
        for r in raw.ranks
    ]
    ranks += [
        CommunicatorRank(
            place=m.rank,
            host=m.host,
            pid=m.pid,
            state="dead" if m.status.considered_dead else "unresponsive" if m.status.unresponsive else "gone",
        )
        for m in raw.missing_ranks
    ]
    return Communicator(raw.hash, raw.size, tuple(sorted(ranks, key=lambda r: r.place)))


def _state(status: _State) -> str:
    if status.abort_flag:
        return "abort"
    if status.finalize_called or status.destroy_flag:
        return "finalize"
    return "running" if status.init_state == _SUCCESS else "init"


def _error(status: _State) -> str:
    for code in (status.async_error, status.init_state):
        if code not in {_SUCCESS, _IN_PROGRESS}:
            return _ERRORS.get(code, f"error {code}")
    return ""


def find_problems(communicator: Communicator) -> Iterator[RasProblem]:
    """Yield the problems that NCCL's own text report would list of this communicator."""
    by_state: dict[str, list[CommunicatorRank]] = {}
    for rank in communicator.ranks:
        by_state.setdefault(rank.state, []).append(rank)
    for state, kind in (("dead", "dead"), ("unresponsive", "incomplete"), ("gone", "mismatch")):
        if state in by_state:
            yield _problem(kind, communicator, by_state[state], _MISSING_WORDS[state])
    present = [r for r in communicator.ranks if r.state not in _MISSING_WORDS]
    for error in dict.fromkeys(r.error for r in present if r.error):
        yield _problem("error", communicator, [r for r in present if r.error == error], f"reported: {error}")
    states = Counter(r.state for r in present)
    if len(states) > 1:
        usual = states.most_common(1)[0][0]
        for state in states:
            if state != usual:
                concerned = by_state[state]
                yield _problem("mismatch", communicator, concerned, f"in state {state}, the others in {usual}")
    yield from _count_problems(communicator, present)


_MISSING_WORDS = {
    "dead": "considered dead by NCCL (unreachable for a minute)",
    "unresponsive": "did not answer NCCL",
    "gone": "no longer in the communicator, though the process answers",
}


def _count_problems(communicator: Communicator, present: Sequence[CommunicatorRank]) -> Iterator[RasProblem]:
    for name in dict.fromkeys(name for r in present for name in r.counts):
        counts = Counter(r.counts.get(name, 0) for r in present)
        if len(counts) > 1:
            usual, number = max(counts.items(), key=lambda item: (item[1], item[0]))
            for count in sorted(counts):
                if count != usual:
                    concerned = [r for r in present if r.counts.get(name, 0) == count]
                    words = f"launched {count} {name}, {number} {'others' if number > 1 else 'other'} {usual}"
                    yield _problem("mismatch", communicator, concerned, words)


def _problem(kind: str, communicator: Communicator, concerned: Sequence[CommunicatorRank], words: str) -> RasProblem:
    places = ", ".join(str(r.place) for r in concerned[:_NAMED]) + (", .." if len(concerned) > _NAMED else "")
    who = f"rank{'s' if len(concerned) > 1 else ''} {places} of communicator {communicator.id}"
    return RasProblem(kind, f"{who}: {words}", tuple((r.host, r.pid) for r in concerned if r.pid >= 0))
