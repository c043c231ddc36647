"""Which processes of a node belong to a serving engine, and at which port it answers.

May import ``sources.discovery``, ``sources.proc`` and the standard library. An engine is known by its processes'
titles (``sources.discovery.titles``) or by its server's command line. No other listening process is asked what it is:
the stores at which ranks meet listen too, and answer a strange request with a line in the user's log. Command lines
and default ports are from each engine's documentation: ``vllm serve`` and ``python -m
vllm.entrypoints.openai.api_server`` (8000), ``python -m sglang.launch_server`` and ``sglang serve`` (30000),
``trtllm-serve`` (8000).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.proc.files import shares_namespace
from hangwatch.sources.proc.sockets import listening_sockets, read_socket_inodes, read_tcp_sockets

_TITLES = frozenset({"VLLM", "sglang"})
_PORTS = {"vllm": 8000, "sglang": 30000, "trtllm-serve": 8000}
_MODULES = {"vllm.entrypoints.openai.api_server": "vllm", "sglang.launch_server": "sglang"}
_TRTLLM_PATH = "/prometheus/metrics"
#: An engine of a node has fewer processes than this.
_MEMBERS_LIMIT = 256


class Endpoint(NamedTuple):
    """Where an engine may answer: the process that listens, the port, and the path of its metrics."""

    pid: int
    inode: int
    port: int
    path: str


def name_server(arguments: Sequence[str]) -> str | None:
    """Return the server that a command line starts: ``vllm``, ``sglang`` or ``trtllm-serve``; None for any other."""
    for place, argument in enumerate(arguments[:4]):
        name = PurePosixPath(argument).name
        after = arguments[place + 1] if place + 1 < len(arguments) else ""
        if name in {"vllm", "sglang"} and after == "serve":
            return name
        if name == "trtllm-serve":
            return name
        if argument == "-m" and after in _MODULES:
            return _MODULES[after]
    return None


def read_port(arguments: Sequence[str], server: str) -> int:
    """Return the port in a server's command line, else the server's default."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        value = value or (arguments[place + 1] if place + 1 < len(arguments) else "")
        if name == "--port" and value.isdigit():
            return int(value)
    return _PORTS[server]


def find_endpoints(processes: Mapping[int, KnownProcess], meeting_ports: Iterable[int]) -> list[Endpoint]:
    """Return where engines of these processes may answer, in this network namespace.

    An engine with a known command line answers only at the port named there; one known by titles at any port on which
    its first process listens. ``meeting_ports``: the ports at which ranks meet; they are left out.
    """
    found = []
    for front, server in _fronts(processes).items():
        process = processes[front]
        if not shares_namespace(front, "net"):
            continue
        ports = {one.local_port for one in listening_sockets(front)} - set(meeting_ports)
        if server is not None:
            ports &= {read_port(process.arguments, server)}
        path = _TRTLLM_PATH if server == "trtllm-serve" else "/metrics"
        found += [Endpoint(front, process.inode, port, path) for port in sorted(ports)]
    return found


def _fronts(processes: Mapping[int, KnownProcess]) -> dict[int, str | None]:
    """Return the first process of each engine, with the server that its command line names."""
    found: dict[int, str | None] = {}
    for process in processes.values():
        server = name_server(process.arguments) if process.python or process.arguments else None
        titled = process.title is not None and process.title.role.partition("::")[0] in _TITLES
        if server is not None or titled:
            top = find_top(processes, process)
            found[top.pid] = name_server(top.arguments)
    return found


def find_top(processes: Mapping[int, KnownProcess], process: KnownProcess) -> KnownProcess:
    """Return the first process of the program that ``process`` belongs to.

    Its parent did not start it by fork or multiprocessing.
    """
    while (parent := processes.get(process.parent)) is not None and is_of_one_program(process, parent):
        process = parent
    return process


def is_of_one_program(process: KnownProcess, parent: KnownProcess) -> bool:
    """True if a process was forked by its parent, or spawned by multiprocessing.

    A process with its parent's command line, or with a title over it, was forked. Compilers, downloaders and the
    helpers of multiprocessing itself do not count.
    """
    if not (process.python and parent.python) or process.launcher is not None or parent.launcher is not None:
        return False
    spawned = "--multiprocessing-fork" in process.arguments
    return spawned or process.title is not None or process.arguments == parent.arguments


def find_members(processes: Mapping[int, KnownProcess], top: int) -> list[KnownProcess]:
    """Return the processes of one program, in order of their start.

    ``top``: the pid of its first process.
    """
    if top not in processes:
        return []
    below: dict[int, list[KnownProcess]] = {}
    for process in processes.values():
        below.setdefault(process.parent, []).append(process)
    members = [processes[top]]
    for member in members:
        members += [p for p in below.get(member.pid, ()) if p is not member and is_of_one_program(p, member)]
        if len(members) > _MEMBERS_LIMIT:
            break
    return sorted(members[:_MEMBERS_LIMIT], key=lambda p: (p.start_time, p.pid))


def find_listener(processes: Mapping[int, KnownProcess], port: int) -> KnownProcess | None:
    """Return the Python process that listens on a port of this network namespace; None if there is none.

    If several share the socket, the oldest.
    """
    inodes = {s.inode for s in read_tcp_sockets(os.getpid()) if s.listening and s.local_port == port}
    if not inodes:
        return None
    holders = (p for p in processes.values() if p.python and not inodes.isdisjoint(read_socket_inodes(p.pid)))
    return min(holders, key=lambda p: (p.start_time, p.pid), default=None)
