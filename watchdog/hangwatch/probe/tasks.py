"""Where the coroutines of this rank's event loops wait, and which tasks have failed. Standard library only.

An event loop's thread shows that the loop waits, but not who waits in it: a suspended coroutine is on no thread's
stack. A failed task is not reported until somebody awaits or deletes it. asyncio keeps the tasks of all loops
(CPython's ``asyncio/tasks.py``: ``_all_tasks`` up to 3.11, ``_scheduled_tasks`` in 3.12 and 3.13; from 3.14 on C keeps them by
loop, and gives out those that are not done). No code of the program is run: tasks may be of its own classes.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from .failures import clean, say_failure

#: A server may have thousands; the oldest are the program's own.
_TASKS = 16
_FRAMES = 24
_FAILED = 3


def read_tasks() -> tuple[list[dict[str, Any]], list[str]]:
    """Return the waiting tasks, and a line for each failed one that nobody has asked for; nothing without asyncio.

    A task has its name and its calls as function, file and line, deepest first.
    """
    module = sys.modules.get("asyncio.tasks")
    base = getattr(module, "Task", None)
    if base is None:
        return [], []
    known = list(getattr(module, "_scheduled_tasks", ()) or getattr(module, "_all_tasks", ()))
    if sys.version_info >= (3, 14):
        known += [task for loop in _running_loops() for task in module.all_tasks(loop)]
    waiting: list[dict[str, Any]] = []
    failed: list[str] = []
    # As in ``asyncio.all_tasks``: if the set changes meanwhile, the next beat tells.
    for task in sorted((one for one in known if isinstance(one, base)), key=lambda one: _order(base, one)):
        if not base.done(task):
            calls = _calls(base.get_coro(task))
            if calls and len(waiting) < _TASKS:
                waiting.append({"name": _name(base, task), "frames": calls})
        elif _get(base, task, "_log_traceback"):  # asking for the exception would mark it as seen
            error = _get(base, task, "_exception")
            if error is not None and len(failed) < _FAILED:
                failed.append(say_failure("task %s" % _name(base, task), type(error), error))
    return waiting, failed


def _running_loops() -> list[Any]:
    """Return the event loops that threads run: asyncio has no list of them. Those of uvloop are on no stack."""
    loop = getattr(sys.modules.get("asyncio.base_events"), "BaseEventLoop", None)
    if loop is None:  # a thread is just importing asyncio, whose tasks come before its loops
        return []
    run = loop.run_forever.__code__
    found = []
    for frame in sys._current_frames().values():
        called: Any = frame
        while called is not None:
            if called.f_code is run:
                found.append(called.f_locals["self"])
            called = called.f_back
    return found


def _order(base: Any, task: Any) -> tuple[int, str]:
    """Return a sort key: by age, if names are asyncio's own, which have a number."""
    name = _name(base, task)
    return len(name), name


def _name(base: Any, task: Any) -> str:
    name = base.get_name(task)
    return clean(name) if type(name) is str else "task"


def _get(base: Any, task: Any, field: str) -> Any:
    """Return a field of asyncio's own task, even if the task's class has another attribute of that name."""
    for kind in base.__mro__:
        if field in kind.__dict__:
            return kind.__dict__[field].__get__(task)
    return None


def _calls(awaited: Any) -> list[tuple[str, str, int]]:
    """Return the calls from a coroutine on through what it awaits, the last first."""
    calls: list[tuple[str, str, int]] = []
    while len(calls) < _FRAMES:
        if type(awaited) is types.CoroutineType:
            frame, awaited = awaited.cr_frame, awaited.cr_await
        elif type(awaited) is types.GeneratorType:
            frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
        else:
            break
        if frame is None:
            break
        code = frame.f_code
        calls.append((clean(getattr(code, "co_qualname", code.co_name)), clean(code.co_filename), frame.f_lineno or 0))
    return calls[::-1]
