"""Beats of the whole node: of every run directory, of other namespaces, and never more than the process's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hangwatch.model.beats import BEAT_VERSION, Beat
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.process_table import ProbedProcess
from hangwatch.sources.proc.files import inner_pid, read_stat, view_of
from support import wait_for

UID = os.getuid()
#: Writes a beat of its own, as it sees itself, makes its socket, says so, and waits.
_WRITER = """
import json, os, socket, sys
folder = sys.argv[1]
os.makedirs(folder + "/ranks")
pid = os.getpid()
ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
control = f"{folder}/ranks/{pid}.control"
listener = socket.socket(socket.AF_UNIX); listener.bind(control); listener.listen()
beat = {"version": 1, "pid": pid, "start_ticks": ticks, "counter": 1, "at_ns": 5, "rank": 3}
beat |= {"control": control, "server": "/run/other.sock"}
open(f"{folder}/ranks/{pid}.beat", "w").write(json.dumps(beat))
print(pid, flush=True)
client = listener.accept()[0]; client.recv(5); client.sendall(b"heard")
input()
"""  # fmt: skip


def member(folder: Path, pid: int | None = None, uid: int = UID) -> ProbedProcess:
    """A process with our view, this very one unless another is given."""
    pid = os.getpid() if pid is None else pid
    return ProbedProcess(pid, pid, uid, view_of("self"), str(folder))


def write_beat(folder: Path, **fields: object) -> Path:
    """A beat of this process in a run directory."""
    stat = read_stat(os.getpid())
    assert stat is not None
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    path = folder / "ranks" / f"{os.getpid()}.beat"
    beat = Beat(BEAT_VERSION, os.getpid(), stat.start_ticks, 1, at_ns=5)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(beat, **fields)))
    return path


def test_every_directory_is_read_that_a_process_names(tmp_path: Path) -> None:
    """Our own directory and any other are read as one; one that nobody names any more is not."""
    write_beat(tmp_path / "one", rank=7)
    beats = NodeBeats(tmp_path / "own")
    assert beats.read() == ({}, ())
    beats.follow([member(tmp_path / "one"), member(tmp_path / "none")])
    assert beats.read()[0][os.getpid()].rank == 7
    beats.follow([])
    assert beats.read() == ({}, ())
    write_beat(tmp_path / "own", rank=8)
    beats.follow([member(tmp_path / "own")])
    assert beats.read()[0][os.getpid()].rank == 8


def test_nothing_is_read_that_is_not_the_processes_own(tmp_path: Path) -> None:
    """Links, FIFOs and files of other users are left alone, and so are files of processes that did not name the place."""
    beats = NodeBeats()
    beats.follow([member(tmp_path)])
    path = write_beat(tmp_path)
    assert set(beats.read()[0]) == {os.getpid()}
    secret = tmp_path / "secret"
    secret.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(secret)
    (tmp_path / "ranks" / f"{os.getpid()}.problem").symlink_to(secret)
    assert beats.read() == ({}, ())
    path.unlink()
    os.mkfifo(path)
    assert beats.read() == ({}, ())
    path.unlink()
    write_beat(tmp_path)
    beats.follow([member(tmp_path, uid=UID + 1)])
    assert beats.read() == ({}, ())
    beats.follow([member(tmp_path, pid=1)])
    assert beats.read() == ({}, ())


@pytest.mark.usefixtures("real")
def test_no_socket_is_asked_that_is_not_the_probes(tmp_path: Path) -> None:
    """A beat that names a socket elsewhere, or a file of the name, gives none; the probe's own is given as we reach it."""
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(tmp_path / "docker.sock"))
    folder = tmp_path / "run"
    write_beat(folder, control=str(tmp_path / "docker.sock"), server=str(folder / "ranks" / "1.server"))
    (folder / "ranks" / "1.server").write_text("")
    beats = NodeBeats()
    beats.follow([member(folder)])
    found = beats.read()[0][os.getpid()]
    assert (found.control, found.server) == (None, None)
    own = socket.socket(socket.AF_UNIX)
    own.bind(str(folder / "ranks" / "docker.sock"))
    assert beats.read()[0][os.getpid()].control == str(folder / "ranks" / "docker.sock")
    for end in (other, own):
        end.close()


@pytest.fixture
def contained() -> Iterator[tuple[ProbedProcess, int]]:
    """A process in mount and PID namespaces of its own, its folder on a file system that only it sees; and its own pid."""
    # A socket's path, seen from outside, has to fit in 107 bytes.
    with tempfile.TemporaryDirectory(prefix="hw", dir="/tmp") as folder:
        yield from _contain(Path(folder))


def _contain(inside: Path) -> Iterator[tuple[ProbedProcess, int]]:
    script = f'mount -t tmpfs none "{inside}" && exec "$0" -c "$1" "{inside}/run"'
    user = [] if os.getuid() == 0 else ["--map-root-user", "--user"]
    enter = ("unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    process = subprocess.Popen(
        [*enter, "sh", "-c", script, sys.executable, _WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    try:
        if not said:
            pytest.skip(f"no namespaces may be made here: {process.communicate()[1].strip()}")
        outer = wait_for(lambda: _child_of(process.pid), 10.0, "the process inside")
        yield ProbedProcess(outer, inner_pid(outer), UID, view_of(outer), f"{inside}/run"), int(said)
    finally:
        process.kill()
        process.communicate()


def _child_of(pid: int) -> int:
    told = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(told[0]) if told else 0


@pytest.mark.usefixtures("real")
def test_a_process_in_namespaces_of_its_own_is_reached(contained: tuple[ProbedProcess, int]) -> None:
    """Its beat has the pid that we know it by, and its socket is one that we can talk to."""
    process, inner = contained
    assert process.inner_pid == inner != process.pid
    assert not Path(process.folder).exists(), "the folder is to be seen in there alone"
    beats = NodeBeats()
    beats.follow([process])
    found, gaps = beats.read()
    assert gaps == ()
    assert found[process.pid].pid == process.pid
    assert found[process.pid].rank == 3
    assert found[process.pid].server is None
    control = found[process.pid].control
    assert control is not None
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(control)
        client.sendall(b"beat\n")
        assert client.recv(16) == b"heard"
