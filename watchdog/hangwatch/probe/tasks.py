"""Where the coroutines of this rank's event loops wait, and which of their tasks have failed. Standard library only.

An event loop's thread shows that the loop waits, and not who waits in it: a suspended coroutine is on no thread's stack. Of a
task that failed nobody hears before somebody awaits it, or it is deleted.
asyncio keeps the tasks of all loops (CPython's ``asyncio/tasks.py``: ``_all_tasks`` up to 3.11, ``_scheduled_tasks`` since 3.12;
from 3.14 on they are kept in C, and none are read). No code of the program's is run: tasks may be of its own classes.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from .failures import clean, say_failure

#: A server may have thousands: those that were made first are the program's own.
_TASKS = 16
_FRAMES = 24
_FAILED = 3


def read_tasks() -> tuple[list[dict[str, Any]], list[str]]:
    """The tasks that wait: name, and calls as function, file and line, the deepest first; and a line for each that has failed.

    Nothing without asyncio. Failures are those that nobody has asked for.
    """
    module = sys.modules.get("asyncio.tasks")
    base = getattr(module, "Task", None)
    known = getattr(module, "_scheduled_tasks", None) or getattr(module, "_all_tasks", None)
    if base is None or known is None:
        return [], []
    waiting: list[dict[str, Any]] = []
    failed: list[str] = []
    # As ``asyncio.all_tasks`` does: the set may change meanwhile, and then the next beat tells.
    for task in sorted((one for one in list(known) if isinstance(one, base)), key=lambda one: _order(base, one)):
        if not base.done(task):
            calls = _calls(base.get_coro(task))
            if calls and len(waiting) < _TASKS:
                waiting.append({"name": _name(base, task), "frames": calls})
        elif _get(base, task, "_log_traceback"):  # asking for the exception itself would take it for seen
            error = _get(base, task, "_exception")
            if error is not None and len(failed) < _FAILED:
                failed.append(say_failure("task %s" % _name(base, task), type(error), error))
    return waiting, failed


def _order(base: Any, task: Any) -> tuple[int, str]:
    """By age, as far as names are asyncio's own, which have a number."""
    name = _name(base, task)
    return len(name), name


def _name(base: Any, task: Any) -> str:
    name = base.get_name(task)
    return clean(name) if type(name) is str else "task"


def _get(base: Any, task: Any, field: str) -> Any:
    """A field of asyncio's own task, whatever a class of the program's makes of its name."""
    for kind in base.__mro__:
        if field in kind.__dict__:
            return kind.__dict__[field].__get__(task)
    return None


def _calls(awaited: Any) -> list[tuple[str, str, int]]:
    """From a coroutine on through what it awaits, the last first."""
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
