"""Fixtures of the whole suite: real processes that leave nothing behind, a clean environment, a free port."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from support import JobRunner, find_free_port, is_launcher_variable

pytest_plugins = ("pytester", "tiers", "workers")  # pytester: for the tests of the other two

# How long an example takes says something of the machine, and nothing of what it shows.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


def _why_it_would_hang() -> str | None:
    """The reason why tests could not work here, with its repair; None where they can."""
    if not sys.platform.startswith("linux"):
        return "the suite drives real Linux processes; run it on Linux or in a Linux container"
    beside = Path(sys.executable).parent / "py-spy"
    if shutil.which("py-spy") is None and not beside.exists():
        return "py-spy is not installed; install the test dependencies with 'make test'"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0" and os.geteuid() != 0:
        return (
            "this kernel forbids reading the stacks of other processes of the same user: "
            "'sudo sysctl kernel.yama.ptrace_scope=0', or run as root (in a container: --cap-add=SYS_PTRACE)"
        )
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        return f"the loopback interface cannot be listened on ({error}); bring it up: 'ip link set lo up'"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an environment in which the tests would hang, and clean what a launcher left in this one."""
    del config
    reason = _why_it_would_hang()
    if reason is not None:
        raise pytest.UsageError(f"the tests would hang here: {reason}")
    for name in [name for name in os.environ if is_launcher_variable(name)]:
        del os.environ[name]
    # Tests call tools of this environment (py-spy, torchrun) by name, also when it was not activated.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


@pytest.fixture
def jobs(real: None, tmp_path: Path) -> Iterator[JobRunner]:
    """Starts real commands; everything that came of them is ended when the test ends."""
    runner = JobRunner(tmp_path / "jobs")
    yield runner
    runner.end_all()


@pytest.fixture
def free_port(real: None) -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    return find_free_port()
