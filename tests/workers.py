"""Which tests stay together when a run is spread over processes (pytest-xdist), derived from the fixtures they use.

Tests that share a fixture wider than one test (a hung job, a server, a browser) go to one worker, so that it is set up once;
any other test goes to whichever worker is free. xdist's own groups are no help: they are marks, and xdist 3.8 loses them under
pytest 9.2, where a test's id is no longer what xdist writes to.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_GROUPS = "groups of tests"


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


class _Scheduling(LoadScopeScheduling):
    """Hands out whole groups, the largest first. ``groups``: where the workers have written which test is in which."""

    def __init__(self, config: pytest.Config, log: Producer | None, groups: Path) -> None:
        super().__init__(config, log)
        self._file = groups
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads(self._file.read_text())
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
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="groups-")
        config.add_cleanup(folder.cleanup)
        config.pluginmanager.register(_Controller(Path(folder.name) / "groups.json"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker: write what stays together, before xdist says that the tests are collected. All workers write the same."""
    given = getattr(session.config, "workerinput", {}).get(_GROUPS)
    if given is None:
        return
    found = {item.nodeid: group for item in session.items if (group := group_of(item)) is not None}
    own = Path(f"{given}.{os.getpid()}")
    own.write_text(json.dumps(found))
    own.rename(given)
