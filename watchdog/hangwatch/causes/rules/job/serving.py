"""A serving engine with requests, of which nothing comes: its scheduler, or what cannot be seen."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.places import calls, user_frame
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.threads import find_serving
from hangwatch.analysis.serving.stall import find_engine_stall
from hangwatch.causes.evidence import at_process, at_stack, standing
from hangwatch.causes.rules.rank.threads import working_threads
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.numbers import is_guest
from hangwatch.model.text import format_ranks

#: That it sleeps or computes in its loop follows from there being nothing that it gives to anyone.
UNSCHEDULED = Signature(
    "engine-stalled", "scheduler-gives-no-work", "likely", beats=("busy-loop", "blocked-io", "straggler", "rank0-work")
)
#: Which thread had it says nothing: a semaphore is given back by whoever has work, and none has.
SLOT_NOT_FREE = Signature(
    "engine-stalled", "waits-for-a-slot", "strong", beats=("thread-stall", "lock-deadlock", "rank-raised", "blocked-io")
)
#: Nothing more is seen than that nothing comes out.
NOTHING_COMES_OUT = Signature("engine-stalled", "nothing-comes-out", "possible", general=True)

#: Of how many processes it is shown where they are.
_SHOWN = 4


def engine_stalled(case: Case) -> Match | None:
    """Requests are there, and nothing has come out since."""
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
            f"Rank{'s' if len(waiting) > 1 else ''} {format_ranks(waiting)} can be given work, and rank {format_ranks(culprits)} "
            f"gives none{at}: "
            "it does not await requests either, so it has them and schedules none."
        )
        return Match(UNSCHEDULED, said, seen)
    shown = [r for r in (*culprits, *engine.beside, *case.views) if r in case.views]
    for rank in list(dict.fromkeys(shown))[:_SHOWN]:
        state = "awaits work" if find_awaiting(case.views[rank]) is not None else case.views[rank].motion.describe()
        seen += (Evidence(rank, "process", state), *at_stack(case, rank))
    said = "Requests are there and nothing comes out; why cannot be seen from its processes."
    return Match(NOTHING_COMES_OUT, said, seen)


def waits_for_slot(case: Case) -> Match | None:
    """A server that is no rank, whose request waits for a slot, a semaphore's, that none of its threads at work can free."""
    for rank, view in standing(case):
        found = calls(view.frames, "/threading.py", "acquire") if is_guest(rank) else None
        own = user_frame(view.frames)
        if found is None or own is None or find_serving(view.capture) is None or working_threads(view):
            continue
        said = (
            f"Rank {rank}'s {view.who} has a request, which waits for a slot in {where(own)}; no thread of it "
            "is at work that could give one back."
        )
        return Match(SLOT_NOT_FREE, said, (*at_stack(case, rank, found), *at_process(case, rank)))
    return None
