"""Which tests stay together when a run is spread over processes (pytest-xdist), derived from the fixtures they use.

Tests that share a fixture wider than one test (a hung job, a server, a browser) go to one worker, so that it is set up once;
any other test goes to whichever worker is free. Those that are marked ``waits`` begin first: one that waits for minutes, and
begins last, keeps all others waiting for it. xdist's own groups are no help: they are marks, and xdist 3.8 loses them under
pytest 9.2, where a test's id is no longer what xdist writes to.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import OrderedDict
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_GROUPS = "groups of tests"
_WAITS = "waits"


def group_of(item: pytest.Item) -> str | None:
    """The place of the wide fixtures that a test shares (a module or a conftest), and the values it gives to them.

    None where a test shares none. Fixtures of plugins, ``real`` among them, count for nothing.
    """
    if not isinstance(item, pytest.Function):
        return None
    definitions = (found[-1] for found in item._fixtureinfo.name2fixturedefs.values())
    shared = sorted((one.baseid, one.argname) for one in definitions if one.baseid and one.scope != "function")
    if not shared:
        return None
    given = item.callspec.params if hasattr(item, "callspec") else {}
    values = [str(given[name]) for place, name in shared if place == shared[0][0] and name in given]
    return ":".join((shared[0][0], *values))


class _Queue(OrderedDict[str, dict[str, bool]]):
    """Groups of tests that are still to be handed out, from its front; those in ``first`` before any other."""

    def __init__(self) -> None:
        super().__init__()
        self.first: frozenset[str] = frozenset()

    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        """The next group, and its tests."""
        scope = next((scope for scope in self if scope in self.first), None)
        return super().popitem(last) if scope is None or last else (scope, self.pop(scope))


class _Scheduling(LoadScopeScheduling):
    """Hands out whole groups, those that wait first, then the largest. ``found``: where the workers write what they know."""

    def __init__(self, config: pytest.Config, log: Producer | None, found: Path) -> None:
        super().__init__(config, log)
        self._file = found
        self._groups: dict[str, str] | None = None
        self.workqueue = self._queue = _Queue()

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            found = json.loads(self._file.read_text())
            self._groups = found[_GROUPS]
            self._queue.first = frozenset(self._groups.get(test, test) for test in found[_WAITS])
        return self._groups.get(nodeid, nodeid)


class _Controller:
    """The process that hands out: tells its workers where to write, and reads it."""

    def __init__(self, groups: Path) -> None:
        self._groups = groups

    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput[_GROUPS] = str(self._groups)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> _Scheduling | None:
        return _Scheduling(config, log, self._groups) if config.getoption("dist") == "loadgroup" else None


def pytest_configure(config: pytest.Config) -> None:
    """Be the controller where there are workers."""
    config.addinivalue_line(
        "markers", f"{_WAITS}: takes a minute or more, and hardly a processor: begins before others"
    )
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="groups-")
        config.add_cleanup(folder.cleanup)
        config.pluginmanager.register(_Controller(Path(folder.name) / "groups.json"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker: write what stays together and what waits, before xdist says that it has collected. All write the same."""
    given = getattr(session.config, "workerinput", {}).get(_GROUPS)
    if given is None:
        return
    groups = {item.nodeid: group for item in session.items if (group := group_of(item)) is not None}
    waiting = [item.nodeid for item in session.items if item.get_closest_marker(_WAITS) is not None]
    own = Path(f"{given}.{os.getpid()}")
    own.write_text(json.dumps({_GROUPS: groups, _WAITS: waiting}))
    own.rename(given)
