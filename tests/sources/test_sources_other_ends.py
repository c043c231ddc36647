"""Who has the other end of what a process reads from: real processes over TCP, UNIX sockets, pipes, ZeroMQ and event loops."""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.capturing.servers import find_servers
from hangwatch.model.capture import RankIdentity
from hangwatch.model.numbers import is_guest
from hangwatch.sources.proc.blocking import read_syscall
from hangwatch.sources.proc.other_ends import find_other_ends, parse_unix_diag
from support import Job, JobRunner, wait_for

TCP_READER = "import socket,sys; s=socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
TIMED_READER = TCP_READER.replace("s.recv", "s.settimeout(600); s.recv")
LOOP_READER = """
import asyncio, sys
async def main():
    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    await reader.read(1)
asyncio.run(main())
"""
ZMQ_READER = """
import sys, zmq
requests = zmq.Context().socket(zmq.REQ)
requests.connect(f'tcp://127.0.0.1:{sys.argv[1]}')
requests.send(b'1')
requests.recv()
"""
UNIX_READER = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
SERVER = """
import socket, sys, time
server = socket.create_server(('127.0.0.1', 0)) if len(sys.argv) < 2 else socket.socket(socket.AF_UNIX)
if len(sys.argv) > 1:
    server.bind(sys.argv[1]); server.listen()
print(server.getsockname()[1] if len(sys.argv) < 2 else 'there', flush=True)
kept = []
while True:
    kept.append(server.accept())
"""
ZMQ_SERVER = """
import time, zmq
replies = zmq.Context().socket(zmq.REP)
print(replies.bind_to_random_port('tcp://127.0.0.1'), flush=True)
replies.recv()
time.sleep(600)
"""


def identify(job: Job) -> RankIdentity:
    """The job's process as a rank."""
    return RankIdentity(rank=0, pid=job.pid, start_time=0.0)


def other_end(pid: int) -> int | None:
    """The process at the other end, now."""
    return find_other_ends({pid: read_syscall(pid)}).get(pid)


def started(jobs: JobRunner, program: str, *arguments: str) -> tuple[Job, str]:
    """A server, and what it says of where it listens."""
    server = jobs.start([sys.executable, "-c", program, *arguments])
    return server, wait_for(lambda: server.stdout().strip(), what="the server")


@pytest.mark.parametrize("reader", [TCP_READER, TIMED_READER, LOOP_READER], ids=["recv", "poll", "asyncio"])
def test_tcp(jobs: JobRunner, reader: str) -> None:
    """A read, a read with a time limit and an event loop lead to the process that has accepted the connection."""
    server, port = started(jobs, SERVER)
    job = jobs.start([sys.executable, "-c", reader, port])
    wait_for(lambda: other_end(job.pid) == server.pid, what="the other end")


def test_unix_socket(jobs: JobRunner, tmp_path: Path) -> None:
    """The kernel tells the peer of a UNIX socket."""
    path = str(tmp_path / "socket")
    server, _ = started(jobs, SERVER, path)
    job = jobs.start([sys.executable, "-c", UNIX_READER, path])
    wait_for(lambda: other_end(job.pid) == server.pid, what="the other end")


def test_zeromq(jobs: JobRunner) -> None:
    """ZeroMQ's own thread has the connections of a process."""
    server, port = started(jobs, ZMQ_SERVER)
    job = jobs.start([sys.executable, "-c", ZMQ_READER, port])
    wait_for(lambda: other_end(job.pid) == server.pid, what="the other end")


def test_pipe_with_several_writers(jobs: JobRunner) -> None:
    """A pipe that one other process may write to leads to it; one that two may write to leads to none."""
    reading, writing = os.pipe()
    job = jobs.start([sys.executable, "-c", "input()"], stdin=reading)
    wait_for(lambda: other_end(job.pid) == os.getpid(), what="this process")
    jobs.start([sys.executable, "-c", "import time; time.sleep(600)"], stdin=writing)
    wait_for(lambda: other_end(job.pid) is None, what="two writers")
    os.close(reading)
    os.close(writing)


def test_inherited_connection(jobs: JobRunner) -> None:
    """A connection that a child of the server has inherited may be answered by either."""
    fork = SERVER.replace(
        "kept.append(server.accept())", "kept.append(server.accept()); import os; os.fork() or time.sleep(600)"
    )
    _, port = started(jobs, fork)
    job = jobs.start([sys.executable, "-c", TCP_READER, port])
    wait_for(lambda: read_syscall(job.pid) is not None and other_end(job.pid) is None, what="two holders")


def test_servers_are_identified(jobs: JobRunner) -> None:
    """The server is captured as a process of no world, by its program's name; the reader itself is none."""
    server, port = started(jobs, SERVER)
    job = jobs.start([sys.executable, "-c", TCP_READER, port])
    awaited, found = wait_for(lambda: (f := find_servers([identify(job)]))[1] and f, what="the server")
    assert awaited == {job.pid: server.pid}
    assert [one.pid for one in found] == [server.pid]
    assert found[0].name == f"process[{server.pid}]"
    assert found[0].worldless
    assert is_guest(found[0].rank)


def test_children_and_parents_are_no_servers(jobs: JobRunner) -> None:
    """What a child delivers is another matter, and what a parent calls for."""
    program = "import subprocess; subprocess.Popen(['sleep', '600'], stdout=subprocess.PIPE).communicate()"
    job = jobs.start([sys.executable, "-c", program])
    wait_for(lambda: other_end(job.pid), what="the child")
    assert find_servers([identify(job)]) == ({}, ())


@given(st.binary(max_size=64))
def test_hostile_answers(body: bytes) -> None:
    """Whatever the bytes, reading an answer ends, without an exception."""
    assert len(parse_unix_diag(body)) <= 1


def test_attributes_of_an_answer() -> None:
    """The peer is found behind other attributes (``struct unix_diag_msg``, ``struct nlattr``)."""
    name = struct.pack("=HH4s", 7, 0, b"abc\0")
    peer = struct.pack("=HHI", 8, 2, 1234)
    head = struct.pack("=BBBBIII", socket.AF_UNIX, 1, 1, 0, 77, 0, 0)
    assert parse_unix_diag(head + name + peer) == {77: 1234}
