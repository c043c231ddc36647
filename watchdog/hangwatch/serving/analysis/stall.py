"""Which of an engine's processes holds it up, if there are requests and no progress. Pure.

The server, the scheduler and the workers of an engine pass requests on by queues that cannot be seen from outside.
Visible is who waits for something to do (``analysis.ranks.requests``): if all but one process of the chain do, that
one is to blame.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.case import Case
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.blame import Blame
from hangwatch.model.serving import EngineState

_LOCAL_SOCKET = re.compile(r"socket:\[\d+\]$")

#: ``ended``: its server is gone, which is no hang. ``gone``: another process has ended since something came out.
#: ``stopped``: one runs no instruction. ``unscheduled``: its ranks await what to do, and who is to give it to them does not
#: await anything. ``stuck``: a process does not move, and does not await anything either. ``moves``: one computes.
#: ``awaits``: all of them await something, as an engine without requests does.
Reason = Literal["ended", "gone", "stopped", "unscheduled", "stuck", "moves", "awaits"]


@dataclass(frozen=True)
class EngineStall:
    """Why there is no progress, as far as is visible, and which processes are to blame."""

    reason: Reason
    blame: Blame


def find_engine_stall(engine: EngineState, views: Mapping[int, RankView], ranks: Case) -> EngineStall:
    """Return why an engine makes no progress.

    ``views``: its ranks and its other processes. ``ranks``: the case of the ranks alone.
    """
    own = [views[n] for n in engine.beside if n in views]
    behind = [v for v in own if v.rank != engine.front]
    workers = [v for n, v in views.items() if n not in engine.beside]
    pids = {v.capture.identity.pid for v in views.values() if not v.gone}
    if any(v.gone for v in own if v.rank == engine.front):
        return EngineStall("ended", Blame("nothing"))
    gone = [v for v in own if v.gone]
    if gone:
        # The others ended because of the first, or together with it.
        gone = [v for v in gone if v.rank in engine.lost] or gone
        return _stall("gone", gone, views)
    stopped = [v for v in (*own, *workers) if v.motion.state == "stopped"]
    if stopped:
        return _stall("stopped", stopped, views)
    # A server that still answers serves its clients; what it awaits besides is not seen.
    asked = behind if not engine.silent_s else own
    if workers and _await_work(workers, ranks):
        at_work = [v for v in behind if not _awaits(v, pids)]
        if at_work:
            return _stall("unscheduled", at_work, views)
    stuck = [v for v in (*asked, *workers) if v.motion.state == "stuck" and v.wait is None and not _awaits(v, pids)]
    if stuck:
        return _stall("stuck", stuck, views)
    moving = [v for v in (*behind, *workers) if v.motion.state == "busy" and not _awaits(v, pids)]
    return _stall("moves" if moving else "awaits", moving, views)


def _stall(reason: Reason, culprits: list[RankView], views: Mapping[int, RankView]) -> EngineStall:
    named = tuple(sorted(v.rank for v in culprits))
    waiting = tuple(sorted(n for n, v in views.items() if n not in named and not v.gone)) if named else ()
    return EngineStall(reason, Blame("root", named, waiting, named))


def _await_work(workers: list[RankView], ranks: Case) -> bool:
    """True if no rank is in the middle of a step."""
    return ranks.idleness is not None or all(find_awaiting(view) is not None for view in workers)


def _awaits(view: RankView, pids: Collection[int]) -> bool:
    """True if a process waits for something to do, or for another process of the engine.

    True also without a stack, which could tell.
    """
    if not view.frames or view.motion.state == "unknown" or find_awaiting(view) is not None:
        return True
    last = view.capture.processes[-1]
    # Who is at the other end of a local socket is not known; multiprocessing's two-way pipes are such.
    return last.writers[0] in pids if last.writers else bool(_LOCAL_SOCKET.match(last.blocked_on or ""))
