"""Which tier a test belongs to, derived from the fixtures it uses, and that no test belies its tier.

- ``check``: pure. It starts no process and touches no socket; one that does fails.
- ``test``: real. It uses the fixture ``real``, by itself or through another one (``jobs``, a browser, a server).
- ``long``: it uses the fixture ``long`` (hosts with networks of their own, Slurm, a soak, thousands of diagnoses).
- ``nccl``: it uses the fixture ``nccl`` (jobs on the real ProcessGroupNCCL, over the simulated device of ``device/README.md``).
- ``soak``: it is marked ``soak``: it repeats with other values, or for longer, what a test of another tier shows. Not run by CI.

``pytest --tier NAME`` runs one of them, several if it is given again, ``pytest`` all. What the machine lacks skips a test; in CI
(``CI`` is set) such a skip is a failure, unless it is a fact about the machine that no installation changes (``OF_THE_MACHINE``).
"""

from __future__ import annotations

import _posixsubprocess
import os
import re
import sys
from collections.abc import Generator

import pytest

#: Name of a tier -> what ``make help`` and ``pytest --help`` say of it.
TIERS = {
    "check": "pure",
    "test": "real components and jobs",
    "long": "hosts, Slurm, soak, all scenarios multiplied",
    "nccl": "jobs on NCCL over the simulated device",
    "soak": "what repeats another test with other values, or for longer",
}
_SOAK = "soak"
#: Reasons for a skip that stand in CI too.
OF_THE_MACHINE = re.compile(
    r"this machine has a GPU|another C library than glibc|takes root|needs? root|root's alone|needs NVRx's"
    r"|no cgroup can be made|no namespaces may be made|gives no network namespaces|CONFIG_CHECKPOINT_RESTORE"
    r"|before Linux|may not be read here|kernel\.dmesg_restrict"
)
#: Audit events (docs.python.org/3/library/audit_events.html) of what a pure test does not do; the last one is ours.
_IMPURE = frozenset(
    {
        "subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn",
        "socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto", "_posixsubprocess.fork_exec",
    }
)  # fmt: skip


class _Guard:
    """Refuses impure acts while a pure test runs. ``seen``: those of the present test, also where the error was swallowed."""

    def __init__(self) -> None:
        self.armed = False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)
        # multiprocessing calls it (3.11: Lib/multiprocessing/util.py, spawnv_passfds), and CPython raises no event for it.
        fork_exec = _posixsubprocess.fork_exec

        def audited(*arguments: object) -> int:
            sys.audit("_posixsubprocess.fork_exec", arguments[0])
            return fork_exec(*arguments)

        _posixsubprocess.fork_exec = audited

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.armed and event in _IMPURE:
            self.seen.append(f"{event}{arguments!r:.200}")
            pytest.fail(self.complaint())

    def complaint(self) -> str:
        """What is said of the present test."""
        acts = "; ".join(self.seen)
        return f"a pure test must not start a process or touch a socket ({acts}): have it use the fixture 'real'"


_GUARD = _Guard()


@pytest.fixture(scope="session")
def real() -> None:
    """Whoever uses it starts processes or touches sockets: it makes a test one of the tier ``test``."""


@pytest.fixture(scope="session")
def long() -> None:
    """Whoever uses it takes long, or more of a machine than is to be had everywhere: the tier ``long``."""


def tier_of(item: pytest.Item) -> str:
    """The tier of a test."""
    if item.get_closest_marker(_SOAK) is not None:
        return _SOAK
    fixtures = frozenset(getattr(item, "fixturenames", ()))
    for tier in ("nccl", "long"):
        if tier in fixtures:
            return tier
    return "test" if "real" in fixtures else "check"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--tier``."""
    words = "; ".join(f"{name}: {what}" for name, what in TIERS.items())
    parser.addoption("--tier", action="append", choices=sorted(TIERS), help=f"run the tests of a tier ({words})")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", f"{_SOAK}: repeats what another test shows: only in the tier {_SOAK}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to other tiers."""
    wanted = config.getoption("--tier")
    if wanted is not None:
        others = [item for item in items if tier_of(item) not in wanted]
        items[:] = [item for item in items if tier_of(item) in wanted]
        config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The guard stands from a pure test's first fixture to its last."""
    _GUARD.seen.clear()
    _GUARD.armed = "real" not in getattr(item, "fixturenames", ())
    try:
        return (yield)
    finally:
        _GUARD.armed = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """An impure act fails the test also where somebody has swallowed the error."""
    result = yield
    if _GUARD.seen:
        pytest.fail(_GUARD.complaint())
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, what is missing is a failure and not a skip."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not OF_THE_MACHINE.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: in CI nothing may be missing: {reason}"
    return report
