"""Which ranks await an answer from another process, outside every collective. Pure.

Of a connection it is known who has the other end, and not what is expected of whom: two sides that both read may each await the
other. So such an edge carries no proof, and no circle is based on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hangwatch.analysis.places import calls
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.threads import find_serving
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.graph import Edge


def find_answers(views: Mapping[int, RankView]) -> dict[int, int]:
    """By rank: the process that it awaits an answer from, where that one was captured and is in the middle of something."""
    numbers = {(v.capture.identity.node, v.capture.identity.pid): rank for rank, v in views.items()}
    found = {}
    for rank, view in views.items():
        server = view.capture.processes[-1].server if view.capture.processes else None
        number = numbers.get((view.capture.identity.node, server)) if server is not None else None
        if number is not None and _asks(view) and _may_answer(views[number]):
            found[rank] = number
    return found


def _asks(view: RankView) -> bool:
    """Whether the rank's main thread is in that read for long, and it is not the read of its next command."""
    reads = view.wait is None and view.thread is None and view.motion.state == "stuck"
    return reads and find_awaiting(view) is None


def _may_answer(view: RankView) -> bool:
    """Whether what a process does can be what the answer takes; one that awaits requests itself may never have had this one."""
    polls = bool(view.frames) and view.frames[0].file.endswith("selectors.py")
    in_event_loop = polls and calls(view.frames[:2], "asyncio/base_events.py", "_run_once") is not None
    serves = not view.capture.identity.worldless or find_serving(view.taken) is not None
    return bool(view.frames) and not view.gone and serves and not in_event_loop and find_awaiting(view) is None


def answer_edges(answers: Mapping[int, int]) -> Iterator[Edge]:
    """The edges of these ranks."""
    return (Edge((rank,), (server,), "answer", None, weak=True) for rank, server in sorted(answers.items()))
