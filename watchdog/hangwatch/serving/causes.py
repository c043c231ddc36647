"""A serving engine with requests and without progress: because of its scheduler, or of something not visible."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import calls, user_frame, where
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.threads import find_serving
from hangwatch.causes.evidence import at_process, at_stack, stuck_culprits
from hangwatch.causes.match import Match
from hangwatch.causes.rules.rank.threads import working_threads
from hangwatch.model.incident import Evidence
from hangwatch.model.numbers import is_guest
from hangwatch.model.text import number_ranks
from hangwatch.serving.analysis.stall import find_engine_stall

#: Of how many processes the place is shown.
_SHOWN = 4


def engine_stalled(case: Case) -> Match | None:
    """Return a match if there are requests, and nothing has been generated since."""
    engine = case.capture.engine
    if engine is None or not engine.demanded or engine.still_s <= 0.0:
        return None
    seen: tuple[Evidence, ...] = (Evidence(None, "engine metrics", f"{engine.name}: {engine.says}"),)
    stall = find_engine_stall(engine, case.views, case)
    culprits = case.blame.culprits
    if stall.reason == "unscheduled" and stall.blame.culprits == culprits:
        rank = culprits[0]
        own = user_frame(case.views[rank].frames)
        at = f", in {where(own)}" if own is not None else ""
        waiting = tuple(r for r in case.views if r not in engine.beside)
        seen += (*at_stack(case, rank), *at_process(case, rank), *at_stack(case, waiting[0]))
        said = (
            f"{number_ranks(waiting).capitalize()} can take work, and {number_ranks(culprits)} gives "
            f"none{at}. It does not wait for requests either, so it has requests and schedules none."
        )
        return Match("engine-stalled", "likely", said, seen)
    shown = [r for r in (*culprits, *engine.beside, *case.views) if r in case.views]
    for rank in list(dict.fromkeys(shown))[:_SHOWN]:
        state = "waits for work" if find_awaiting(case.views[rank]) is not None else case.views[rank].motion.describe()
        seen += (Evidence(rank, "process", state), *at_stack(case, rank))
    said = "The engine has requests but produces no output. Its processes do not show why."
    return Match("engine-stalled", "seen", said, seen)


def waits_for_slot(case: Case) -> Match | None:
    """Return a match if a server's request waits for a slot that none of its running threads can free.

    The server is no rank; a semaphore counts its slots.
    """
    for rank, view in stuck_culprits(case):
        found = calls(view.frames, "/threading.py", "acquire") if is_guest(rank) else None
        own = user_frame(view.frames)
        if found is None or own is None or find_serving(view.capture) is None or working_threads(view):
            continue
        said = (
            f"{view.who} of rank {rank} holds a request that waits for a slot in {where(own)}; no "
            "thread of that process is at work that could free one."
        )
        return Match("engine-stalled", "strong", said, (*at_stack(case, rank, found), *at_process(case, rank)))
    return None
