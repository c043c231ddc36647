"""What the probe says of event loops: where their coroutines wait, and which of their tasks have failed."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest
from probe_runs import Run

from hangwatch.probe import tasks
from support import LONG_S

PROGRAM = """
import asyncio, sys
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

class Loud(asyncio.Task):
    said = False
    def get_name(self):
        Loud.said = True
        return super().get_name()

async def get(queue):
    return await queue.get()

async def serve(queue):
    return await get(queue)

async def fail():
    raise KeyError("samples")

async def fail_and_tell():
    raise ValueError("told")

async def main():
    queue = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    waiting = asyncio.create_task(serve(queue), name="server")
    loud = Loud(serve(queue), loop=loop, name="loud")
    failed, told = asyncio.create_task(fail(), name="reader"), asyncio.create_task(fail_and_tell())
    try:
        await told
    except ValueError:
        pass
    print("here", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    print(failed._log_traceback, Loud.said, flush=True)

asyncio.run(main())
dist.destroy_process_group()
"""


def test_coroutines_and_failed_tasks_are_told(run: Run) -> None:
    """Their whole call paths; a failure that the program has heard of is none, and one that it has not stays its own to hear."""
    script = run.write(PROGRAM)
    rank = run.start_rank(script)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "here\n"
    beat = run.wait_beat(rank.pid, lambda beat: beat.tasks != ())
    tasks = {task.name: [re.sub(r".*\.", "", function) for function, _, _ in task.frames] for task in beat.tasks}
    assert tasks == {"Task-1": ["main"], "server": ["get", "get", "serve"], "loud": ["get", "get", "serve"]}
    assert {file for task in beat.tasks for _, file, _ in task.frames if not file.endswith("asyncio/queues.py")} == {
        str(script)
    }
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "return await queue.get()" in text)
    assert beat.tasks[-1].frames[1][2] == line
    # From Python 3.14 on asyncio gives out no task that is done.
    failure = f"task reader: KeyError: 'samples', in fail ({script.name}:{_line(script.read_text(), 'KeyError')})"
    told = [re.sub(r"/\S+/", "", text) for text in beat.task_failure]
    assert told == [failure] * (sys.version_info < (3, 14))
    assert beat.problems == ()
    out, err = rank.communicate("\n", timeout=LONG_S)
    assert (out, rank.returncode) == ("True False\n", 0), err


def test_without_a_loop_nothing_is_told(run: Run) -> None:
    """Importing asyncio makes no task."""
    script = run.write(PROGRAM.replace("asyncio.run(main())", "sys.stdin.readline()"))
    rank = run.start_rank(script)
    beat = run.wait_beat(rank.pid, lambda beat: beat.counter > 4)
    assert (beat.tasks, beat.task_failure, beat.problems) == ((), (), ())
    rank.communicate("\n", timeout=LONG_S)


def test_an_asyncio_that_is_being_imported_runs_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """``asyncio.base_events`` imports the tasks before it defines the loop; the probe may look in between (Python 3.14)."""
    monkeypatch.setitem(sys.modules, "asyncio.base_events", ModuleType("asyncio.base_events"))
    assert tasks._running_loops() == []


def _line(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)
