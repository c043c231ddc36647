"""Hosts of a test's own on this machine: each has its own network, processes, host name; a bridge joins them.

Needs root and a kernel with network namespaces; everything is removed again, also where a test fails.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from support import Job, JobRunner, wait_for

#: ``SKF_AD_OFF + SKF_AD_RANDOM`` (linux/filter.h), ``TC_ACT_SHOT`` and ``TC_ACT_UNSPEC`` (linux/pkt_cls.h).
_RANDOM, _DROP, _PASS = 2**32 - 0x1000 + 56, 2, 2**32 - 1
_CLOCK = Path(__file__).with_name("other_clock.c")
_NETWORKS = itertools.count()
_INIT = 'hostname "$0"; mount --bind "$1" /etc/hosts; ip link set lo up; while :; do sleep infinity & wait; done'


def why_not() -> str | None:
    """Why there can be no such hosts here; None where there can."""
    if os.geteuid() != 0:
        return "hosts of their own need root (network namespaces)"
    missing = [tool for tool in ("ip", "tc", "iptables", "unshare", "nsenter", "cc") if shutil.which(tool) is None]
    if missing:
        return f"hosts of their own need {', '.join(missing)} (Debian: iproute2, iptables, util-linux, gcc)"
    name = f"hwtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"this kernel or container gives no network namespaces: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return None


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def kill(job: Job) -> None:
    """End a command of a host without a word: it is a child of the one that went there."""
    for process in psutil.Process(job.pid).children():
        process.kill()
    job.process.wait()


@dataclass
class Host:
    """One host. ``home`` is its own, short enough for the sockets in it; ``environment`` is that of all its commands."""

    name: str
    address: str
    home: Path
    runner: JobRunner
    namespace: str
    outer: str
    pid: int = 0
    environment: dict[str, str] = field(default_factory=dict)

    def inside(self) -> tuple[str, ...]:
        """What a command begins with that runs on this host."""
        return ("nsenter", "-t", str(self.pid), "-n", "-p", "-m", "-u")

    def start(self, *command: str, env: Mapping[str, str | None] | None = None) -> Job:
        """Start a command on this host."""
        own = {"TMPDIR": str(self.home / "tmp"), "GLOO_SOCKET_IFNAME": "eth0", "HANGWATCH_STATE_DIR": str(self.state)}
        return self.runner.start((*self.inside(), *command), {**own, **self.environment, **(env or {})})

    @property
    def state(self) -> Path:
        """Its state directory."""
        return self.home / "state"

    def hangwatch(self, *arguments: str, env: Mapping[str, str | None] | None = None) -> Job:
        """Start ``hangwatch`` on this host."""
        entry = "import sys; sys.argv[0] = 'hangwatch'; from hangwatch.cli.main import main; main()"
        return self.start(sys.executable, "-c", entry, *arguments, env=env)

    def cut(self) -> None:
        """Take its link down."""
        _ip("link", "set", self.outer, "down")

    def mend(self) -> None:
        """Bring its link up again."""
        _ip("link", "set", self.outer, "up")

    def lose(self, share: float) -> None:
        """Let its link lose so much of what comes and goes, at random; 0: nothing.

        By a classic packet filter, which any kernel with traffic control has: one random number, and a comparison.
        """
        drop = f"32 0 0 {_RANDOM},53 1 0 {int(share * 2**32)},6 0 0 {_DROP},6 0 0 {_PASS}"
        self._filter(drop if share > 0 else None)

    def limit(self, rate: str | None) -> None:
        """Let its card carry no more than this, such as ``100mbit``, each way; None: as much as it can."""
        ways = (("tc", self.outer), (*self.inside(), "tc", "eth0"))
        for *tc, device in ways:
            subprocess.run([*tc, "qdisc", "del", "dev", device, "root"], check=False, capture_output=True)
            if rate is not None:
                bucket = ["tbf", "rate", rate, "burst", "64kb", "latency", "400ms"]
                subprocess.run([*tc, "qdisc", "add", "dev", device, "root", *bucket], check=True, capture_output=True)

    def block(self, port: int | None) -> None:
        """Have a firewall drop all that goes to this TCP port and comes from it, over IPv4; None: nothing any more.

        The same kind of filter: protocols first, then both ports, behind an IP header of any length.
        """
        of_tcp = "40 0 0 12,21 0 8 2048,48 0 0 23,21 0 6 6,177 0 0 14"
        ports = f"72 0 0 14,21 2 0 {port},72 0 0 16,21 0 1 {port}"
        self._filter(f"{of_tcp},{ports},6 0 0 {_DROP},6 0 0 {_PASS}" if port is not None else None)

    def _filter(self, program: str | None) -> None:
        """Have a classic packet filter judge what its link carries, both ways."""
        subprocess.run(["tc", "qdisc", "del", "dev", self.outer, "clsact"], check=False, capture_output=True)
        if program is None:
            return
        subprocess.run(["tc", "qdisc", "add", "dev", self.outer, "clsact"], check=True, capture_output=True)
        counted = f"{program.count(',') + 1},{program}"
        for way in ("ingress", "egress"):
            command = ["tc", "filter", "add", "dev", self.outer, way, "bpf", "da", "bytecode", counted]
            subprocess.run(command, check=True, capture_output=True)

    def rename(self, name: str) -> None:
        """Give it another host name."""
        subprocess.run([*self.inside(), "hostname", name], check=True, capture_output=True)

    def set_clock(self, ahead_s: int) -> None:
        """Have all that is started from now on see a time of day that is so far ahead, and the machine booted as much later.

        Namespaces have no time of day of their own, so it is told by a library of ours.
        """
        library = self.home / "other_clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, _CLOCK], check=True, capture_output=True)
        self.environment |= {"LD_PRELOAD": str(library), "CLOCK_AHEAD_S": str(ahead_s)}
        stat, own = Path("/proc/stat").read_text(), self.home / "stat"
        own.write_text(re.sub(r"^btime (\d+)", lambda at: f"btime {int(at[1]) + ahead_s}", stat, flags=re.MULTILINE))
        subprocess.run([*self.inside(), "mount", "--bind", own, "/proc/stat"], check=True, capture_output=True)

    def processes(self) -> list[psutil.Process]:
        """All that runs on it, below its first process."""
        space = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != self.pid and Path(f"/proc/{process.pid}/ns/pid").readlink() == space:
                    found.append(process)
            except OSError:
                continue
        return found


@dataclass
class Network:
    """Some hosts and the bridge between them."""

    hosts: list[Host] = field(default_factory=list)

    def __getitem__(self, number: int) -> Host:
        """A host, in the order they were made."""
        return self.hosts[number]


@contextmanager
def make_hosts(runner: JobRunner, count: int) -> Iterator[Network]:
    """So many hosts, ``n0`` and so on, at 10.77.0.1 and so on."""
    tag = f"hw{os.getpid() % 100000}{next(_NETWORKS)}"  # links go a while after their namespace
    homes = Path(tempfile.mkdtemp(prefix="hw-", dir="/tmp"))
    spaces: list[str] = []
    inits: list[subprocess.Popen[bytes]] = []
    network = Network()
    try:
        _ip("link", "add", f"{tag}b", "type", "bridge")
        _ip("link", "set", f"{tag}b", "up")
        names = homes / "hosts"
        lines = [f"10.77.0.{number + 1} n{number}" for number in range(count)]
        names.write_text("\n".join(("127.0.0.1 localhost", *lines, "")))
        for number in range(count):
            space, outer, address = f"{tag}n{number}", f"{tag}v{number}", f"10.77.0.{number + 1}"
            _ip("netns", "add", space)
            spaces.append(space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", f"{tag}b", "up")
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            enter = (
                "ip",
                "netns",
                "exec",
                space,
                "unshare",
                "--fork",
                "--pid",
                "--mount-proc",
                "--uts",
                "--kill-child",
            )
            init = subprocess.Popen([*enter, "bash", "-c", _INIT, f"n{number}", str(names)], stdout=subprocess.DEVNULL)
            inits.append(init)
            host = Host(f"n{number}", address, homes / f"n{number}", runner, space, outer)
            (host.home / "tmp").mkdir(parents=True)
            host.pid = wait_for(lambda init=init: _only_child(init.pid), 10.0, "the first process of a host")
            network.hosts.append(host)
        yield network
    finally:
        try:
            runner.end_all()
        finally:
            for init in inits:
                for child in psutil.Process(init.pid).children():
                    child.kill()
                init.wait(10.0)
            for space in spaces:
                _ip("netns", "del", space)
            subprocess.run(["ip", "link", "del", f"{tag}b"], check=False, capture_output=True)
            shutil.rmtree(homes, ignore_errors=True)


def _only_child(pid: int) -> int | None:
    """The process below ``unshare``, once it has its name."""
    children = psutil.Process(pid).children()
    if not children or "bash" not in children[0].name():
        # ``ip netns exec`` becomes what it runs
        return None
    child = children[0]
    try:
        return child.pid if any(c.name() == "sleep" for c in child.children()) else None
    except psutil.NoSuchProcess:  # one of the short commands before it
        return None
