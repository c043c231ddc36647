"""NCCL's RAS subsystem, asked over TCP: which ranks each communicator has, and what NCCL itself reports as wrong.

May import hangwatch.model, its own parts, msgspec, psutil and the standard library. Protocol: ``src/ras/client.cc``
and ``client_support.cc`` of NCCL 2.30.7 (protocol 2, from 2.24 on; ``SET FORMAT`` from 2.28.7): one line per command
and one per answer, but after ``STATUS`` the report until EOF. The answering thread is NCCL's own: no rank is touched
or waited for.

All processes of a user listen on one address with SO_REUSEPORT, so the kernel picks who answers. It may pick another
job's process, or a stopped one that never answers: hence several attempts, each from a new port.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import msgspec
import psutil

from hangwatch.hardware.sources.ras.ras_json import RasFormatError, parse_status_json
from hangwatch.hardware.sources.ras.ras_text import parse_status_text
from hangwatch.model.capture import Gap
from hangwatch.model.devices import Absence, NodeFacts, RasReport
from hangwatch.sources.connections.endpoint import is_own_host
from hangwatch.sources.discovery.rank_processes import RankProcess

NAME = "nccl ras"
DEFAULT_ADDRESS = "localhost:28028"
#: Sent to NCCL: how long it may wait for its peers. It adds five seconds of its own where peers do not answer.
PEERS_TIMEOUT_S = 2
#: A process that runs answers the greeting at once.
GREETING_TIMEOUT_S = 1.0
_ATTEMPTS = 8
#: Seconds between two reports that show which counts grow.
WINDOW_S = 1.0
#: A report that took this long was waiting for peers: a second one would not fit into the time there is.
_PROMPT_S = 1.0
_REPORT_TIMEOUT_S = PEERS_TIMEOUT_S + 5.0 + 1.0
_LIMIT_BYTES = 64 << 20


class RasError(Exception):
    """NCCL gave no report; the message is one line for people."""


class Ras:
    """One query for each address in the ranks' environments."""

    name = NAME

    def begin(self) -> None:
        """Do nothing: there is nothing to compare with."""

    def read(self, ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """Return the reports on the ranks' communicators."""
        asked: dict[str, list[RankProcess]] = {}
        for rank in ranks:
            if rank.alive and rank.variables.get("NCCL_RAS_ENABLE", "1") != "0":
                asked.setdefault(rank.variables.get("NCCL_RAS_ADDR") or DEFAULT_ADDRESS, []).append(rank)
        if not asked:
            said = "switched off by NCCL_RAS_ENABLE=0" if ranks else "no rank to ask"
            return NodeFacts("", 0, absent=(Absence(NAME, said),), looked=(NAME,))
        reports, failures = [], []
        for address, members in asked.items():
            try:
                reports.append(map_ranks(ask_twice(address, members), members, local_hosts()))
            except RasError as error:
                failures.append(str(error))
        if not reports:
            hint = (
                "RAS needs NCCL 2.24 or newer, listens in the job's own network namespace, and answers "
                "only the job's user"
            )
            return Gap(NAME, "; ".join(failures), hint=hint)
        return NodeFacts("", 0, ras=tuple(reports), looked=(NAME,))


def ask_twice(address: str, members: Sequence[RankProcess]) -> RasReport:
    """Return a report that also says which ranks have launched anything since a report just before.

    Raises ``RasError``.
    """
    began_s = time.monotonic()
    first = ask(address, members)
    if not first.communicators or time.monotonic() - began_s > _PROMPT_S:
        return first
    read_s = time.monotonic()
    time.sleep(WINDOW_S)
    try:
        return compare(first, ask(address, members), time.monotonic() - read_s)
    except RasError:
        return first  # the job may have ended meanwhile


def compare(first: RasReport, second: RasReport, window_s: float) -> RasReport:
    """Return the second report with the ranks whose counts changed since the first, ``window_s`` seconds before."""
    before = {(c.id, r.place): r.counts for c in first.communicators for r in c.ranks}
    return msgspec.structs.replace(
        second,
        communicators=tuple(
            msgspec.structs.replace(
                c,
                launching=tuple(r.place for r in c.ranks if r.counts != before.get((c.id, r.place), r.counts)),
                window_s=window_s,
            )
            for c in second.communicators
        ),
    )


def ask(address: str, members: Sequence[RankProcess]) -> RasReport:
    """Return the report of the job these ranks belong to. Raises ``RasError``."""
    host, port = parse_address(address)
    # The job names the address: it must not send us to other machines. NCCL listens on the node of its ranks alone.
    if not is_own_host(host):
        raise RasError(f"NCCL_RAS_ADDR={address} is not on this node")
    reason = "nobody answered"
    for _ in range(_ATTEMPTS):
        try:
            report = _ask_once(address, host, port)
        except TimeoutError:
            reason = "whoever accepted the connection did not answer (a stopped process?)"
            continue
        except ConnectionRefusedError:
            raise RasError(f"nobody listens on {address}") from None
        except (OSError, RasFormatError) as error:
            reason = str(error)
            continue
        if speaks_for(report, members):
            return report
        reason = "another job answered; give each job on a node its own NCCL_RAS_ADDR"
    raise RasError(f"{address}: {reason}")


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``[IPV6]:PORT`` (``ncclSocketGetAddrFromString``).

    Raises ``RasError``.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]").partition("%")[0]
    if not host or not port.isdigit() or int(port) > 65535:
        raise RasError(f"NCCL_RAS_ADDR={address} is not HOST:PORT")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)  # noqa: S104  # what a job listens on


def _ask_once(address: str, host: str, port: int) -> RasReport:
    with socket.create_connection((host, port), GREETING_TIMEOUT_S) as connection:
        if not _say(connection, "CLIENT PROTOCOL 2").upper().startswith("SERVER PROTOCOL"):
            raise RasError(f"{address}: the listener is not NCCL RAS")
        _say(connection, f"TIMEOUT {PEERS_TIMEOUT_S}")
        structured = _say(connection, "SET FORMAT json") == "OK"
        connection.settimeout(_REPORT_TIMEOUT_S)
        connection.sendall(b"VERBOSE STATUS\n")
        data = _read_report(connection)
    return (parse_status_json if structured else parse_status_text)(data, address)


def _say(connection: socket.socket, command: str) -> str:
    """Return the one line that answers a command, read byte by byte: what follows belongs to the next answer."""
    connection.sendall(command.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n") and len(answer) < 1024:
        more = connection.recv(1)
        if not more:
            raise ConnectionResetError("NCCL closed the connection")
        answer += more
    return answer.decode(errors="replace").strip()


def _read_report(connection: socket.socket) -> bytes:
    deadline = time.monotonic() + _REPORT_TIMEOUT_S
    chunks: list[bytes] = []
    length = 0
    while chunk := connection.recv(1 << 16):
        chunks.append(chunk)
        length += len(chunk)
        if length > _LIMIT_BYTES:
            raise RasFormatError(f"the report has more than {_LIMIT_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(chunks)


def speaks_for(report: RasReport, members: Sequence[RankProcess]) -> bool:
    """True if the report may be of these ranks' job: it names one of them, or none at all."""
    named = {r.pid for c in report.communicators for r in c.ranks}
    named |= {pid for p in report.problems for _, pid in p.processes}
    return not named or bool(named & {m.namespace_pid for m in members})


def local_hosts() -> frozenset[str]:
    """Return the addresses of this machine, as NCCL may write them."""
    found = (a.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for a in addresses)
    return frozenset(found)


def map_ranks(report: RasReport, members: Sequence[RankProcess], hosts: frozenset[str]) -> RasReport:
    """Return the report with global ranks, found by host and by the pid that a process has for itself."""
    by_pid = {m.namespace_pid: m.rank for m in members}

    def find(host: str, pid: int) -> int | None:
        return by_pid.get(pid) if host in hosts else None

    def known(pairs: Sequence[tuple[str, int]]) -> tuple[int, ...]:
        return tuple(sorted({r for host, pid in pairs if (r := find(host, pid)) is not None}))

    replace = msgspec.structs.replace
    communicators = tuple(
        replace(c, ranks=tuple(replace(r, rank=find(r.host, r.pid)) for r in c.ranks)) for c in report.communicators
    )
    problems = tuple(replace(p, ranks=known(p.processes)) for p in report.problems)
    return replace(report, communicators=communicators, problems=problems)
