"""Which tasks of Ray a process has called that are not done, and which process runs each: what Ray's dashboard on this node says.

Formats of Ray 2.60: its state API (``GET /api/v0/tasks``: ``TaskState`` in ``ray/util/state/common.py``) and its jobs
(``GET /api/jobs/``: ``JobDetails`` in ``ray/dashboard/modules/job/pydantic_models.py``), which name the drivers. Both come from
Ray's control store; no worker is asked. They take ``ray[default]``, and a cluster that asks for no token. May import hangwatch's
own ``serving.sources`` and ``sources.proc``, and psutil.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
import psutil

from hangwatch.sources.connections.endpoint import fetch, is_own_host
from hangwatch.sources.proc.files import read_arguments, read_user, shares_namespace
from hangwatch.sources.proc.sockets import listening_sockets

#: A capture waits for the answer.
TIMEOUT_S = 1.0
#: Ray gives out no more at once (``ray/util/state/common.py: RAY_MAX_LIMIT_FROM_API_SERVER``).
_MOST_TASKS = 10_000
_DASHBOARD = "ray/dashboard/dashboard.py"
_PORT = "--port="
_RAYLET, _NODE = "/raylet/raylet", "--node_id="
_ANY, _LOOPBACK = frozenset({"0.0.0.0", "::"}), "127.0.0.1"  # noqa: S104 - what is read, not listened on
_DRIVER = "DRIVER_TASK"
#: What a worker shows as its title, before the function or ``Class.method`` that it runs.
_TITLE = "ray::"
_UNFINISHED = "&".join(f"filter_keys=state&filter_predicates=!%3D&filter_values={s}" for s in ("FINISHED", "FAILED"))
_TASKS = f"/api/v0/tasks?limit={_MOST_TASKS}&timeout=1&exclude_driver=False&{_UNFINISHED}"
_JOBS = "/api/jobs/"


class RayTask(NamedTuple):
    """A task that is not done. ``name``: of its function, or ``Class.method``. ``state``: Ray's word for it.

    ``pid``: of the worker that runs it, where that is a process of this node.
    """

    name: str
    state: str
    pid: int | None


class _Task(msgspec.Struct):
    task_id: str
    name: str = ""
    state: str = ""
    type: str = ""
    job_id: str | None = None
    parent_task_id: str | None = None
    node_id: str | None = None
    worker_pid: int | None = None


class _Listed(msgspec.Struct):
    result: list[_Task]


class _Data(msgspec.Struct):
    result: _Listed


class _Answer(msgspec.Struct):
    data: _Data


class _Driver(msgspec.Struct):
    id: str
    pid: str
    node_ip_address: str


class _Job(msgspec.Struct):
    driver_info: _Driver | None = None


async def find_tasks(callers: Collection[int]) -> dict[int, tuple[RayTask, ...]]:
    """Return the unfinished tasks of each caller, by its pid; only callers that a dashboard of this node knows."""
    found: dict[int, tuple[RayTask, ...]] = {}
    users = {user for pid in callers if (user := read_user(pid)) is not None}
    if not users:
        return found
    urls, nodes = await asyncio.to_thread(_find_clusters, users)
    for url in urls:
        tasks, jobs = await asyncio.gather(fetch(url + _TASKS, TIMEOUT_S), fetch(url + _JOBS, TIMEOUT_S))
        if isinstance(tasks, bytes):
            listed = jobs if isinstance(jobs, bytes) else b"[]"
            found |= await asyncio.to_thread(parse_tasks, tasks, listed, callers, nodes)
    return found


def find_running(names: Collection[str]) -> list[int]:
    """Return the workers of this node that run a function or a method of one of these names now, as their titles say."""
    titles = ((pid, read_arguments(pid)[0]) for pid in (psutil.pids() if names else ()))
    return [pid for pid, title in titles if title.startswith(_TITLE) and re.split(r"[:.]", title)[-1] in names]


def parse_tasks(
    tasks: bytes, jobs: bytes, callers: Collection[int], nodes: Collection[str]
) -> dict[int, tuple[RayTask, ...]]:
    """Return the unfinished tasks of each caller, by its pid, from the dashboard's two answers.

    An answer in another form counts as empty. ``nodes``: Ray's ids of this node. Pids are those of the node that runs
    a task.
    """
    try:
        listed = msgspec.json.decode(tasks, type=_Answer).data.result.result
    except msgspec.MsgspecError:
        return {}
    drivers = _read_drivers(jobs)
    runners = {t.task_id: t.worker_pid for t in listed if t.node_id in nodes and _runs(t.worker_pid, t.name)}
    own = {task_id: pid for task_id, pid in runners.items() if pid is not None}
    of_drivers = ((t.task_id, drivers.get(t.job_id or "", "")) for t in listed if t.type == _DRIVER)
    own |= {task_id: int(pid) for task_id, pid in of_drivers if pid.isdigit()}
    found: dict[int, tuple[RayTask, ...]] = {}
    for task in listed:
        caller = own.get(task.parent_task_id or "")
        if caller is not None and caller in callers and task.type != _DRIVER:
            found[caller] = (*found.get(caller, ()), RayTask(task.name, task.state, runners.get(task.task_id)))
    return found


def _read_drivers(jobs: bytes) -> dict[str, str]:
    """Return the pids of this node's drivers by Ray's id of their job; none if the answer has another form."""
    try:
        listed = msgspec.json.decode(jobs, type=list[_Job])
    except msgspec.MsgspecError:
        return {}
    drivers = (job.driver_info for job in listed if job.driver_info is not None)
    return {one.id: one.pid for one in drivers if is_own_host(one.node_ip_address)}


def _runs(pid: int | None, name: str) -> bool:
    """True if a process runs a task of that name, which a Ray worker shows as its title (``ray::NAME``)."""
    return pid is not None and read_arguments(pid)[0].startswith(f"{_TITLE}{name}")


def _find_clusters(users: Collection[int]) -> tuple[list[str], frozenset[str]]:
    """Return the addresses of these users' dashboards on this node, and Ray's ids of this node.

    An address counts only if the dashboard's own process listens there: whoever starts a process may write any port
    into its command line. The ids are those of nodes whose pids are ours.
    """
    commands = {pid: read_arguments(pid) for pid in psutil.pids()}
    raylets = [c for pid, c in commands.items() if c[0].endswith(_RAYLET) and shares_namespace(pid, "pid")]
    dashboards = [pid for pid, c in commands.items() if c[1:2] and c[1].endswith(_DASHBOARD)]
    own = [pid for pid in dashboards if read_user(pid) in users and shares_namespace(pid, "net")]
    urls = [url for pid in own if (url := _address(pid, commands[pid])) is not None]
    return urls, frozenset(value for command in raylets for value in _values(command, _NODE))


def _address(pid: int, command: Sequence[str]) -> str | None:
    """Return the address at which a process listens, by the port in its command line; None if it does not."""
    ports = list(_values(command, _PORT))
    hosts = (one.local_address for one in listening_sockets(pid) if str(one.local_port) in ports[:1])
    host = next(hosts, None)
    return None if host is None else f"http://{_LOOPBACK if host in _ANY else host}:{ports[0]}"


def _values(command: Sequence[str], option: str) -> Iterator[str]:
    return (word.removeprefix(option) for word in command if word.startswith(option))
