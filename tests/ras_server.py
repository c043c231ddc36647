"""NCCL's RAS server, rebuilt from ``src/ras/client_support.cc`` of NCCL 2.30.7: its commands, its answers, its two reports.

``report_json`` and ``report_text`` print as its ``rasDumpCommsToJSON`` and ``rasClientRunComms`` do, blanks included.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def rank(place: int, pid: int, counts: Mapping[str, int] | None = None, **status: Any) -> str:
    """``jsonWriteRankData``."""
    flags = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    shown = ",\n".join(f'            "{k}": {str(v).lower()}' for k, v in {**flags, **status}.items())
    numbers = ",\n".join(f'            "{name}": {(counts or {}).get(name, 0)}' for name in OPERATIONS)
    return (
        f'        {{\n          "rank": {place},\n          "host": "127.0.0.1",\n          "pid": {pid},\n'
        f'          "cuda_dev": {place},\n          "nvml_dev": {place},\n          "status": {{\n{shown}\n          }},\n'
        f'          "collective_counts": {{\n{numbers}\n          }}\n        }}'
    )


def missing(place: int, pid: int, unresponsive: bool, dead: bool) -> str:
    """``jsonWriteMissingRank``."""
    return (
        f'        {{\n          "rank": {place},\n          "host": "127.0.0.1",\n          "pid": {pid},\n'
        f'          "cuda_dev": {place},\n          "nvml_dev": {place},\n          "status": {{\n'
        f'            "unresponsive": {str(unresponsive).lower()},\n            "considered_dead": {str(dead).lower()}\n'
        "          }\n        }"
    )


def report_json(ranks: Sequence[str], absent: Sequence[str] = (), timeouts: int = 0) -> bytes:
    """The whole document, of one communicator."""
    size = len(ranks) + len(absent)
    text = (
        '{\n  "nccl_version": "2.30.7",\n  "cuda_runtime_version": 13000,\n  "cuda_driver_version": 13000,\n'
        '  "timestamp": "2026-11-21 16:00:00",\n  "communicators_count": 1,\n  "communicators": [\n    {\n'
        '      "hash": "0x6e6fb2fa5a3b1c",\n      "secondary_hash": "0x1:0x2",\n'
        f'      "size": {size},\n      "ranks_count": {len(ranks)},\n      "missing_ranks_count": {len(absent)},\n'
        '      "ranks": [\n'
        + ",\n".join(ranks)
        + '\n      ],\n      "missing_ranks": [\n'
        + ",\n".join(absent)
        + "\n      ]\n    }"
        f'\n  ],\n  "ras": {{\n    "collection_time_sec": 0.012,\n    "timeouts_count": {timeouts}\n  }}\n}}\n'
    )
    return text.encode()


def report_text(errors: str = "", warnings: str = "", version: str = "2.24.3") -> bytes:
    """The whole report, of one communicator of four ranks."""
    return (
        f"NCCL version {version} compiled with CUDA 12.8\nCUDA runtime version 12080, driver version 12080\n\n"
        "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
        "(total)   per node  per process    (total)  (total)\n      1          4            1          4        4\n"
        "\nCommunicators... (0.00s)\n=============\n\n"
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    #  in group  per comm  per node  per comm  in group\n"
        "    0         1         1         4         4         4   RUNNING      OK\n"
        f"\nErrors\n======\n\n{errors}Warnings\n========\n\n{warnings}"
    ).encode()


def _talk(
    connection: socket.socket,
    number: int,
    answer: Callable[[int, bool], bytes | None],
    structured: bool,
    greets: Callable[[int], bool],
    ended: threading.Event,
) -> None:
    json = False
    with connection, connection.makefile("rwb") as stream:
        while greets(number):
            line = stream.readline()
            if not line:
                return
            command = line.decode().strip().lower()
            if command.startswith("client protocol "):
                stream.write(b"SERVER PROTOCOL 2\n")
            elif command.startswith("timeout "):
                stream.write(b"OK\n")
            elif command.startswith("set format ") and structured:
                json = command.endswith("json")
                stream.write(b"OK\n")
            elif command in {"status", "verbose status"}:
                report = answer(number, json)
                if report is None:
                    break
                stream.write(report)
                return
            else:
                stream.write(f"ERROR: Unknown command {line.decode().strip()}\n".encode())
            stream.flush()
        ended.wait(30)


@contextmanager
def serve(
    answer: Callable[[int, bool], bytes | None],
    *,
    structured: bool = True,
    greets: Callable[[int], bool] = lambda _: True,
) -> Iterator[str]:
    """A server on a free port; its address. ``answer(n, json)`` is the report of the nth connection, None: never one.

    ``structured``: it knows ``SET FORMAT`` (2.28.7 on). ``greets(n)``: whether the nth connection is answered at all, which
    one accepted for a stopped process is not.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def accept() -> None:
        for number in range(1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=_talk, args=(connection, number, answer, structured, greets, ended))
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [acceptor, *threads]:
            thread.join(10)
