"""What Ray's dashboard says of tasks: two answers of Ray 2.60 as it gave them, and who of this node may be meant.

A driver (3510) awaits a task and an actor's method, which awaits a task itself. Real clusters: tests/e2e/test_e2e_ray.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hangwatch.sources.connections import ray_tasks
from hangwatch.sources.connections.ray_tasks import RayTask, find_running, parse_tasks
from support import JobRunner

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "ray"
TASKS, JOBS = ((FIXTURES / name).read_bytes() for name in ("tasks.json", "jobs.json"))
NODE, ADDRESS = "708b1bfc28e6705b1978d30f5a9407519c05be656898f7e58b0628ea", "192.0.2.2"
TITLES = {3884: "ray::grade", 3885: "ray::grade", 3951: "ray::Store.ask", 3510: "python"}


#: A stand-in for the dashboard's process: it listens at the port it is given, or only says so.
PROCESS = """
import socket, sys, time
port = int(sys.argv[1].partition("=")[2])
kept = socket.create_server(("127.0.0.1", port)) if sys.argv[2] == "listens" else None
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """What the processes of this node are called."""
    found = dict(TITLES)
    monkeypatch.setattr(ray_tasks, "read_arguments", lambda pid: [found.get(pid, "")])
    monkeypatch.setattr(ray_tasks, "is_own_host", lambda host: host == ADDRESS)
    return found


@pytest.mark.usefixtures("titles")
def test_a_driver_and_a_worker_await_what_they_have_called() -> None:
    """Each its own tasks, with the processes that run them."""
    assert parse_tasks(TASKS, JOBS, {3510, 3951, 3884}, {NODE}) == {
        3510: (RayTask("grade", "RUNNING", 3884), RayTask("Store.ask", "RUNNING", 3951)),
        3951: (RayTask("grade", "RUNNING", 3885),),
    }


@pytest.mark.usefixtures("titles")
def test_nothing_is_said_of_those_that_were_not_asked_for() -> None:
    """Whoever else has tasks in that cluster."""
    assert parse_tasks(TASKS, JOBS, {3951}, {NODE}).keys() == {3951}


def test_a_title_tells_who_runs_a_function(titles: dict[int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a method of any class; not of what the class is called."""
    monkeypatch.setattr(ray_tasks.psutil, "pids", lambda: list(titles))
    assert find_running({"ask"}) == [3951]
    assert find_running({"grade", "ask"}) == [3884, 3885, 3951]
    assert find_running({"Store", "python"}) == find_running(()) == []


def test_a_pid_counts_where_its_process_runs_that_task(titles: dict[int, str]) -> None:
    """Ray's pids are those of each node, and of its PID namespace: here another process may have the number."""
    titles[3884], titles[3951] = "python", "ray::IDLE"
    assert parse_tasks(TASKS, JOBS, {3510, 3951}, {NODE}) == {
        3510: (RayTask("grade", "RUNNING", None), RayTask("Store.ask", "RUNNING", None))
    }


@pytest.mark.usefixtures("titles")
def test_a_pid_of_another_node_is_none_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are set up alike give the same numbers to the same processes."""
    tasks = (RayTask("grade", "RUNNING", None), RayTask("Store.ask", "RUNNING", None))
    assert parse_tasks(TASKS, JOBS, {3510, 3951}, {"another"}) == {3510: tasks}
    monkeypatch.setattr(ray_tasks, "is_own_host", lambda _: False)
    assert parse_tasks(TASKS, JOBS, {3510, 3951}, {"another"}) == {}


@pytest.mark.usefixtures("titles")
@pytest.mark.parametrize("tasks", [b"", b"<html>", b'{"result": false, "msg": "unauthorized", "data": null}'])
def test_an_answer_of_another_form_says_nothing(tasks: bytes) -> None:
    """A cluster that asks for a token, another server at that port, another version."""
    assert parse_tasks(tasks, JOBS, {3510}, {NODE}) == {}


@pytest.mark.usefixtures("titles")
@pytest.mark.parametrize(
    "jobs", [b"", b"[]", b'[{"type": "SUBMISSION", "driver_info": null}]', b'[{"driver_info": {"id": 1}}]']
)
def test_without_the_jobs_only_workers_are_known(jobs: bytes) -> None:
    """The driver's pid is among these alone."""
    assert parse_tasks(TASKS, jobs, {3510, 3951}, {NODE}).keys() == {3951}


@pytest.mark.parametrize("how", ["listens", "says so"])
def test_a_dashboard_is_asked_where_its_process_listens(
    jobs: JobRunner, tmp_path: Path, free_port: int, how: str
) -> None:
    """Not at a port that a command line names and another process has, and not where it is another user's."""
    script = tmp_path / "ray" / "dashboard" / "dashboard.py"
    script.parent.mkdir(parents=True)
    script.write_text(PROCESS)
    jobs.start([sys.executable, script, f"--port={free_port}", how]).wait_for_output("ready")
    address = f"http://127.0.0.1:{free_port}"
    assert (address in ray_tasks._find_clusters({os.getuid()})[0]) is (how == "listens")
    assert address not in ray_tasks._find_clusters({os.getuid() + 1})[0]
