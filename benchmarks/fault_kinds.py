"""What strikes in ``benchmarks/faults.py``: each kind is begun and undone by one small function, and ``KINDS`` lists all."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from faults import World

Kind = Callable[["World"], AbstractContextManager[None]]
_BUFFER = bytes(65536)
_NOISE = (
    b"",
    b"\0" * 4096,
    b"flight\n",
    b"raise " + b"x" * 500,
    b"POST /handler/",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\n" * 999,
)


@contextmanager
def _kill(world: World) -> Iterator[None]:
    """The agent is killed, and started again when this is over."""
    world.agent.send(signal.SIGKILL)
    world.agent.wait()
    yield


@contextmanager
def _stop(world: World) -> Iterator[None]:
    """The agent stands still."""
    world.agent.send(signal.SIGSTOP)
    yield
    world.agent.send(signal.SIGCONT)


@contextmanager
def _signal(world: World) -> Iterator[None]:
    """The agent is asked to end or, several times at once, to read its settings again."""
    for number in world.luck.choice(((signal.SIGTERM,), (signal.SIGHUP,) * 5)):
        world.agent.send(number)
    yield


def _limit(kind: int, most: Callable[[psutil.Process], int]) -> Kind:
    """The agent gets hardly more of something than it has."""

    @contextmanager
    def limit(world: World) -> Iterator[None]:
        undo = ExitStack()
        with suppress(psutil.Error, OSError):
            agent = psutil.Process(world.agent.pid)
            before = agent.rlimit(kind)
            agent.rlimit(kind, (most(agent), before[1]))
            undo.push(suppress(psutil.Error, OSError))
            undo.callback(agent.rlimit, kind, before)
        yield
        undo.close()

    return limit


def _fill(place: str) -> Kind:
    """A directory's file system is full."""

    @contextmanager
    def fill(world: World) -> Iterator[None]:
        file = world.folder / place / "fill"
        with suppress(OSError), file.open("wb", buffering=0) as full:
            while full.write(_BUFFER):
                pass
        yield
        with suppress(OSError):
            file.unlink(missing_ok=True)

    return fill


def _read_only(place: str) -> Kind:
    """A directory's file system becomes read-only."""

    @contextmanager
    def remount(world: World) -> Iterator[None]:
        for option in ("ro", "rw"):
            subprocess.run(["mount", "-o", f"remount,{option}", world.folder / place], check=False, capture_output=True)
            if option == "ro":
                yield

    return remount


@contextmanager
def _run_directory_goes(world: World) -> Iterator[None]:
    """It is deleted under the hands of agent and probe, and comes back."""
    shutil.rmtree(world.ranks.parent, ignore_errors=True)
    yield
    with suppress(OSError):
        world.ranks.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _litter(world: World) -> Iterator[None]:
    """Nonsense lies in the run directory: names in no encoding, beats without end or of pids that others have, or get next."""
    pid, made = max(psutil.pids()), []
    beat = next((file.read_bytes() for file in world.ranks.glob("*[0-9].beat")), b"{")
    with suppress(OSError):
        for name in (
            "\udcff\udcfe.beat",
            "1.beat",
            f"{pid}.beat",
            f"{pid + 1}.beat",
            f"{pid + 2}.left",
            f"{pid}.problem",
        ):
            made.append(world.ranks / name)
            made[-1].write_bytes(world.luck.choice((beat, beat[:-9], b"\xff" * 300_000, b"[" * 5000, b"")))
    stranger = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(2)"])
    yield
    stranger.wait()
    for path in made:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _pester(unix: bool) -> Kind:
    """Dozens of clients say nothing, nonsense or half of it, and stay."""

    @contextmanager
    def pester(world: World) -> Iterator[None]:
        held = []
        for _ in range(60):
            client = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
            client.settimeout(0.2)
            with suppress(OSError, IndexError):
                client.connect(str(world.luck.choice(world.sockets())) if unix else ("127.0.0.1", world.port))
                client.sendall(world.luck.choice(_NOISE))
            held.append(client)
        yield
        for client in held:
            client.close()

    return pester


@contextmanager
def _impostor(where: str | int, how: str) -> Iterator[None]:
    """Somebody listens there who is silent, babbles, or hangs up."""
    server = socket.socket(socket.AF_INET if isinstance(where, int) else socket.AF_UNIX)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held = [server]

    def serve() -> None:
        with suppress(OSError):
            while True:
                held.append(server.accept()[0])
                if how == "babbles":
                    held[-1].sendall(random.randbytes(100_000))  # noqa: S311
                if how != "silent":
                    held[-1].close()

    with suppress(OSError):
        server.bind(("127.0.0.1", where) if isinstance(where, int) else where)
        server.listen(8)
        threading.Thread(target=serve, daemon=True).start()
    yield
    with suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    for one in held:
        one.close()


@contextmanager
def _rank_is_played(world: World) -> Iterator[None]:
    """A socket of a probe is somebody else's, who answers badly."""
    path = world.luck.choice([*world.sockets(), world.ranks / "1.control"])
    with suppress(OSError):
        path.rename(path.with_suffix(".aside"))
    with _impostor(str(path), world.luck.choice(("silent", "babbles", "ends"))):
        yield
    with suppress(OSError):
        path.with_suffix(".aside").rename(path)


@contextmanager
def _exchange(world: World) -> Iterator[None]:
    """The exchange stands still, is gone, or somebody else has its port; it comes back empty."""
    how = world.luck.choice(("stopped", "gone", "silent", "babbles"))
    if how == "stopped":
        world.redis.send(signal.SIGSTOP)
        yield
        world.redis.send(signal.SIGCONT)
        return
    world.redis.end()
    with nullcontext() if how == "gone" else _impostor(world.redis_port, how):
        yield
    world.redis = world.start_redis()


@contextmanager
def _reader(world: World) -> Iterator[None]:
    """py-spy hangs, crashes, writes nonsense, or may not be executed."""
    how = world.luck.choice(("hangs", "crashes", "babbles", "gone"))
    world.mode.write_text(how)
    world.pyspy.chmod(0o644 if how == "gone" else 0o755)
    yield
    world.mode.write_text("works")
    world.pyspy.chmod(0o755)


@contextmanager
def _clock(world: World) -> Iterator[None]:
    """The time of day jumps, for agent and ranks alike, and stays so."""
    with world.ahead.open("r+b") as file:
        file.write(struct.pack("=q", world.luck.choice((-90_000, -40, 0, 40, 7_000, 90_000))))
    yield


def _act(name: str) -> Kind:
    """A rank does something itself."""

    @contextmanager
    def act(world: World) -> Iterator[None]:
        with suppress(OSError):  # the rank has not started, or is gone
            orders = os.open(world.acts / str(world.luck.randrange(2)), os.O_WRONLY | os.O_NONBLOCK)
            os.write(orders, f"{name}\n".encode())
            os.close(orders)
        yield

    return act


#: What strikes, and how often in comparison.
KINDS: dict[str, tuple[Kind, float]] = {
    "agent killed": (_kill, 6),
    "agent stopped": (_stop, 4),
    "agent signalled": (_signal, 2),
    "agent without descriptors": (_limit(psutil.RLIMIT_NOFILE, lambda agent: agent.num_fds() + 1), 3),
    "agent without memory": (_limit(psutil.RLIMIT_AS, lambda agent: agent.memory_info().vms + (1 << 20)), 3),
    "state directory full": (_fill("state"), 3),
    "run directory full": (_fill("run"), 3),
    "state directory read-only": (_read_only("state"), 2),
    "run directory read-only": (_read_only("run"), 2),
    "run directory deleted": (_run_directory_goes, 2),
    "litter in the run directory": (_litter, 3),
    "hostile clients of the page": (_pester(unix=False), 3),
    "hostile clients of the probes": (_pester(unix=True), 4),
    "probe's socket played by another": (_rank_is_played, 3),
    "exchange gone or hostile": (_exchange, 4),
    "stack reader broken": (_reader, 4),
    "clock jumps": (_clock, 3),
}
#: The same, where ranks take orders (``tests/jobs/acting_site``).
ACTS: dict[str, tuple[Kind, float]] = {
    f"rank: {name}": (_act(name), weight)
    for name, weight in {
        "fork": 1, "fork, closing all": 1, "python": 1, "python -I": 1, "python -S -E": 1, "spawn": 0.3,
        "descriptors": 1, "ptrace": 1, "folder": 1,
    }.items()
}  # fmt: skip

_ALL = "import os, sys, runpy{}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
_CLOSING = _ALL.format("; os.closerange(3, 4096); import torch.distributed; os.closerange(3, 4096)")
_SITELESS = (
    f"import sys; sys.path += {[path for path in sys.path if path.endswith('site-packages')]!r}; {_ALL.format('')}"
)
_EXEC = "import os, sys, torch.distributed; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
#: A process without this capability may only trace others that have none more than it, and are dumpable.
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
#: How ranks are started: what stands before the program, and the folder of a ``sitecustomize`` of the user's.
WAYS: dict[str, tuple[tuple[str, ...], str]] = {
    "taking orders": ((sys.executable,), "acting_site"),
    "taking orders, without CAP_SYS_PTRACE": ((*WITHOUT_PTRACE, sys.executable), "acting_site"),
    "python -I": ((sys.executable, "-I"), ""),
    "python -E": ((sys.executable, "-E"), ""),
    "python -S": ((sys.executable, "-S", "-c", _SITELESS), ""),
    "raising sitecustomize": ((sys.executable,), "raising_site"),
    "failing probe": ((sys.executable,), "faulty_site"),
    "after an exec": ((sys.executable, "-c", _EXEC), ""),
    "all descriptors closed": ((sys.executable, "-c", _CLOSING), ""),
    "taking orders, paths in no encoding": ((sys.executable,), "acting_site"),
}


def site_of(world: World, name: str) -> Path:
    """Return the folder of a ``sitecustomize``; ``raising_site`` is made here."""
    if name != "raising_site":
        return world.jobs / name
    folder = world.folder / name
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    return folder
