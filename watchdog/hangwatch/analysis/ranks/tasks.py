"""The coroutines of a rank's event loop: what its thread would be in, if they were functions. Pure."""

from __future__ import annotations

from hangwatch.analysis.places import user_frame
from hangwatch.analysis.ranks.views import RankView
from hangwatch.model.stacks import Frame

#: The frames of asyncio (CPython 3.10 to 3.14) and of uvloop under which tasks run.
_LOOPS = ("asyncio/runners.py", "asyncio/base_events.py", "uvloop/")


def find_awaited(view: RankView) -> tuple[Frame, ...]:
    """The calls of the first task with code of the program's, the deepest first, where the thread is in a loop that runs none."""
    above = next((i for i, f in enumerate(view.frames) if any(part in f.file for part in _LOOPS)), None)
    if above is None or user_frame(view.frames[:above]) is not None:
        return ()
    return next((t.frames for t in view.capture.tasks if user_frame(t.frames) is not None), ())
