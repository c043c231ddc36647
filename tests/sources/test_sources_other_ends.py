"""Who has the other end of what a process is blocked on: real processes over TCP, UNIX sockets, pipes, ZeroMQ, stores, queues."""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.capturing.servers import Beyond, find_asked, find_servers
from hangwatch.model.capture import RankIdentity
from hangwatch.model.numbers import is_guest
from hangwatch.sources.connections.other_ends import Ends, find_connected, find_ends
from hangwatch.sources.connections.unix_sockets import parse_unix_diag
from hangwatch.sources.proc.threads import read_calls
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
GRPC_READER = "import grpc,sys; grpc.insecure_channel(f'127.0.0.1:{sys.argv[1]}').unary_unary('/s.S/M')(b'')"
GRPC_SERVER = """
import concurrent.futures, grpc, time
method = grpc.unary_unary_rpc_method_handler(lambda request, context: time.sleep(600))
server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('s.S', {'M': method}),))
print(server.add_insecure_port('127.0.0.1:0'), flush=True)
server.start()
server.wait_for_termination()
"""


def identify(job: Job) -> RankIdentity:
    """The job's process as a rank."""
    return RankIdentity(rank=0, pid=job.pid, start_time=0.0)


def ends(pid: int) -> Ends:
    """What is at the other end of what the main thread is blocked on, now."""
    return find_ends({(pid, pid): read_calls(pid)[pid]}).get((pid, pid), Ends())


def other_end(pid: int) -> int | None:
    """The one process at the other end, now."""
    holders = ends(pid).holders
    return next(iter(holders)) if len(holders) == 1 else None


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


def test_grpc(long: None, jobs: JobRunner) -> None:
    """So has gRPC's, which wakes the thread that has called."""
    server, port = started(jobs, GRPC_SERVER)
    job = jobs.start([sys.executable, "-c", GRPC_READER, port])
    wait_for(lambda: other_end(job.pid) == server.pid, what="the other end")


def test_pipe_with_several_writers(jobs: JobRunner) -> None:
    """A pipe that one other process may write to leads to it; one that two may write to leads to both."""
    reading, writing = os.pipe()
    job = jobs.start([sys.executable, "-c", "input()"], stdin=reading)
    wait_for(lambda: other_end(job.pid) == os.getpid(), what="this process")
    other = jobs.start([sys.executable, "-c", "import time; time.sleep(600)"], stdin=writing)
    wait_for(lambda: ends(job.pid).holders == {os.getpid(), other.pid}, what="two writers")
    os.close(reading)
    os.close(writing)


def test_inherited_connection(jobs: JobRunner) -> None:
    """A connection that a child of the server has inherited may be answered by either."""
    fork = SERVER.replace(
        "kept.append(server.accept())", "kept.append(server.accept()); import os; os.fork() or time.sleep(600)"
    )
    _, port = started(jobs, fork)
    job = jobs.start([sys.executable, "-c", TCP_READER, port])
    wait_for(lambda: len(ends(job.pid).holders) == 2, what="two holders")


def test_servers_are_identified(jobs: JobRunner) -> None:
    """The server is captured as a process of no world, by its program's name; the reader itself is none."""
    server, port = started(jobs, SERVER)
    job = jobs.start([sys.executable, "-c", TCP_READER, port])
    awaited, found = wait_for(lambda: (f := find_servers([identify(job)]))[1] and f, what="the server")
    assert awaited == {(job.pid, job.pid): Beyond((server.pid,))}
    assert [one.pid for one in found] == [server.pid]
    assert found[0].name == f"process[{server.pid}]"
    assert found[0].worldless
    assert is_guest(found[0].rank)


def test_who_is_asked_from_another_node(jobs: JobRunner) -> None:
    """By both ends of a connection, as another node tells of it: who has accepted it."""
    server, port = started(jobs, SERVER)
    with socket.create_connection(("127.0.0.1", int(port))) as link:
        own, other = (":".join(map(str, end)) for end in (link.getsockname(), link.getpeername()))
        wait_for(lambda: find_connected([(own, other)]) == {(own, other): {server.pid}}, what="the server")
        assert find_connected([(other, own)]) == {(other, own): {os.getpid()}}
        # A client knows its server by the address of a service, and a server its client by none but the client's own.
        assert find_connected([(own, "10.0.0.9:80")]) == {(own, "10.0.0.9:80"): {server.pid}}
        assert find_connected([(other, "10.0.0.9:80")]) == {}
        asked = find_asked([(own, other)], [identify(server)])
        assert {one.pid: there for one, there in asked.items()} == {server.pid: ((own, other),)}


def test_a_connection_that_is_not_accepted_is_of_who_listens(real: None) -> None:
    """The other end of it is no descriptor of anybody yet."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as link:
        own, other = (":".join(map(str, end)) for end in (link.getsockname(), link.getpeername()))
        assert find_connected([(own, other)]) == {(own, other): {os.getpid()}}


def test_children_are_no_servers(jobs: JobRunner) -> None:
    """What a child delivers is another matter."""
    child = "import time; time.sleep(600)"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{child}'], stdout=-1).communicate()"
    job = jobs.start([sys.executable, "-c", program])
    wait_for(lambda: other_end(job.pid), what="the child")
    assert find_servers([identify(job)]) == ({}, ())


def test_servers_that_a_process_has_started(jobs: JobRunner) -> None:
    """A child that has accepted the connection is a server like any other, and so is a parent at the other end of a pipe."""
    program = f"""
import os, socket, subprocess, sys
server = subprocess.Popen([sys.executable, '-c', {SERVER!r}], stdout=-1, text=True)
connection = socket.create_connection(('127.0.0.1', int(server.stdout.readline())))
print(server.pid, flush=True)
connection.recv(1)
"""
    job = jobs.start([sys.executable, "-c", program])
    server = int(wait_for(lambda: job.stdout().strip(), what="its server"))
    wait_for(lambda: find_servers([identify(job)])[0] == {(job.pid, job.pid): Beyond((server,))}, what="the server")
    forks = "import os, sys, time; r, w = os.pipe(); p = os.fork(); p or os.read(r, 1); print(p, flush=True); time.sleep(600)"
    parent = jobs.start([sys.executable, "-c", forks])
    child = int(wait_for(lambda: parent.stdout().strip(), what="its child"))
    rank = RankIdentity(rank=0, pid=child, start_time=0.0)
    wait_for(lambda: find_servers([rank])[0] == {(child, child): Beyond((parent.pid,))}, what="the parent")


def test_server_that_does_not_accept(jobs: JobRunner) -> None:
    """A connection that nobody has accepted yet is that of who listens there."""
    server, port = started(jobs, SERVER.replace("while True:", "time.sleep(600)\nwhile True:"))
    job = jobs.start([sys.executable, "-c", TCP_READER, port])
    wait_for(lambda: ends(job.pid).accepted == {server.pid}, what="who listens")


def test_full_connections(jobs: JobRunner) -> None:
    """Who writes to a pipe or a socket that is full waits for who reads from it."""
    reading, writing = os.pipe()
    reader = jobs.start([sys.executable, "-c", "import time; time.sleep(600)"], stdin=reading)
    writer = jobs.start([sys.executable, "-c", "import os; os.write(0, b'x' * 10_000_000)"], stdin=writing)
    os.close(reading)
    os.close(writing)
    wait_for(lambda: ends(writer.pid).holders == {reader.pid}, what="the reader of the pipe")
    server, port = started(jobs, SERVER)
    sends = TCP_READER.replace("s.recv(1)", "s.sendall(b'x' * 100_000_000)")
    sender = jobs.start([sys.executable, "-c", sends, port])
    wait_for(lambda: ends(sender.pid).holders == {server.pid}, what="the reader of the socket")


def test_thread_that_reads(jobs: JobRunner) -> None:
    """The read of a pool's thread is found, whose result the main thread awaits."""
    server, port = started(jobs, SERVER)
    program = f"import concurrent.futures as c; c.ThreadPoolExecutor(1).submit(exec, {TCP_READER!r}).result()"
    job = jobs.start([sys.executable, "-c", program, port])
    found = wait_for(lambda: find_servers([identify(job)])[0], what="the thread")
    assert list(found.values()) == [Beyond((server.pid,))]
    assert job.pid not in {thread for _, thread in found}


STORE = """
import datetime, sys, time
import torch.distributed as dist
host = len(sys.argv) < 2
kept = dist.TCPStore("127.0.0.1", 0 if host else int(sys.argv[1]), is_master=host, wait_for_workers=False,
                     timeout=datetime.timedelta(hours=1), use_libuv=LIBUV)
print(kept.port, flush=True)
kept.get("a key") if sys.argv[2:] == ["get"] else time.sleep(600)
"""


@pytest.mark.parametrize("libuv", [True, False], ids=["libuv", "plain"])
def test_store(jobs: JobRunner, libuv: bool) -> None:
    """Who awaits a key of a store waits for the others that are connected to it, and not for its host as such."""
    program = STORE.replace("LIBUV", str(libuv))
    host, port = started(jobs, program)
    reader, _ = started(jobs, program, port, "get")
    other, _ = started(jobs, program, port)

    def clients() -> frozenset[int]:
        store = ends(reader.pid).store
        return store.clients if store is not None else frozenset()

    wait_for(lambda: clients() == {host.pid, other.pid}, what="the clients")
    found = ends(reader.pid)
    assert not found.holders
    assert found.store is not None
    assert (found.store.host, found.store.unseen, found.store.address) == (host.pid, 0, f"127.0.0.1:{port}")
    awaited, servers = find_servers([identify(reader)])
    assert {one.pid for one in servers} == {host.pid, other.pid}
    assert awaited[reader.pid, reader.pid].servers == ()


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


LOCKING = """
import multiprocessing, os, sys, time

def wait(lock):
    os.write(1, b"%d\\n" % os.getpid())  # in one piece
    lock.acquire()

def hold(lock, held):
    lock.acquire()
    held.set()
    os.write(1, b"%d\\n" % os.getpid())  # in one piece
    time.sleep(600)

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    lock, held = spawn.Lock(), spawn.Event()
    spawn.Process(target=hold, args=(lock, held)).start()
    held.wait()
    waiting = spawn.Process(target=wait, args=(lock,))
    waiting.start()
    waiting.join()  # at its end this process removes the lock, which the other one has to open first
"""


def test_lock_between_processes(jobs: JobRunner, tmp_path: Path) -> None:
    """Who waits for a lock of multiprocessing may wait for any process that has it: which one is written nowhere."""
    program = tmp_path / "locking.py"
    program.write_text(LOCKING)
    job = jobs.start([sys.executable, str(program)])
    both = wait_for(lambda: len(found := job.stdout().split()) == 2 and [int(pid) for pid in found], what="both")
    waiter = next(pid for pid in both if wait_for(lambda: read_calls(pid)[pid], what="its call").name == "futex")  # noqa: B023
    wait_for(lambda: ends(waiter).holders == {job.pid, *both} - {waiter}, what="the others")


HOLDING = """
import fcntl, sys, time
held = open(sys.argv[1], "a")
fcntl.{take}(held, fcntl.LOCK_EX)
print("has it", flush=True)
time.sleep(600)
"""
WAITING = "import fcntl,sys; f=open(sys.argv[1],'a'); fcntl.{take}(f, fcntl.LOCK_EX)"


@pytest.mark.parametrize("take", ["flock", "lockf"])
def test_lock_on_a_file(jobs: JobRunner, tmp_path: Path, take: str) -> None:
    """The kernel tells who has the lock on a file, of flock(2) and of fcntl(2)."""
    path = str(tmp_path / "lock")
    holder, _ = started(jobs, HOLDING.replace("{take}", take), path)
    job = jobs.start([sys.executable, "-c", WAITING.replace("{take}", take), path])
    wait_for(lambda: other_end(job.pid) == holder.pid, what="who has the lock")
