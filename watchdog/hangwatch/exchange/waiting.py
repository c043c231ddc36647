"""Waiting with a limit. May import the standard library only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def wait_within(work: Awaitable[_T], limit_s: float) -> _T:
    """Return the result of ``work``; if it takes longer, cancel it and raise ``asyncio.TimeoutError``.

    ``asyncio.wait_for`` before Python 3.12 loses a cancellation that arrives when the work completes (cpython#86296):
    a task that waits in a loop then never ends.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=limit_s)
    except asyncio.CancelledError:
        _end(task)
        raise
    if not task.done():
        _end(task)
        raise asyncio.TimeoutError
    return task.result()


def _end(task: asyncio.Future[_T]) -> None:
    task.cancel()
    # Retrieve the exception of the cancelled task, so that asyncio does not log it.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
