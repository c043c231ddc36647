"""A rank whose thread waits for a mutex of the C library: which thread holds it, and whether that can ever release it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.ranks.mutexes import MutexChain, follow, steady_waits
from hangwatch.analysis.ranks.threads import main_of
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_process, at_stack, stuck_culprits
from hangwatch.causes.match import Level, Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import MutexWait
from hangwatch.model.stacks import ThreadStack


def mutex_deadlock(case: Case) -> Match | None:
    """Return a match if the rank's thread waits for a mutex: in a circle, of a thread that has ended, or of a stuck one."""
    for rank, view in stuck_culprits(case):
        chain = follow(steady_waits(view.capture), _own_thread(view))
        if chain is None or _interpreter_in(view.threads, chain):
            continue  # with the interpreter's lock in the chain it is gil-held, which reports the chain as well
        level: Level = "certain" if chain.cycle or chain.abandoned else "likely"
        evidence = (*at_mutexes(view, chain.waits), *at_stack(case, rank), *at_process(case, rank))
        return Match("lock-deadlock", level, f"Rank {rank}'s {view.who} {explain(view, chain)}", evidence)
    return None


def explain(view: RankView, chain: MutexChain) -> str:
    """Return the chain as a sentence about its first thread, without that thread's name."""
    owners = [_name(view.threads, wait.owner, wait.owner_name) for wait in chain.waits]
    if len(chain.waits) == len(chain.cycle) == 1:
        return "takes a mutex of the C library that it already holds, and waits for itself."
    steps = [f"waits for a mutex of the C library that {owners[0]} holds"]
    steps += [f"{owner} waits for one that {of} holds" for owner, of in pairwise(owners)]
    said = "; ".join(steps)
    if chain.cycle:
        return f"{said}: none of them can continue."
    if chain.abandoned:
        return f"{said}. That thread no longer exists, so the mutex is never released."
    if chain.awaits_interpreter:
        return f"{said}, which waits for the GIL: none of them can continue."
    return f"{said}, which {f'is in {chain.last.owner_in}()' if chain.last.owner_in else 'runs'}."


def at_mutexes(view: RankView, waits: Sequence[MutexWait]) -> tuple[Evidence, ...]:
    """Return each wait as evidence."""
    return tuple(
        Evidence(
            view.rank,
            "process",
            (
                f"{_name(view.threads, wait.thread, wait.name)} waits for a mutex of the C library owned "
                f"by {_name(view.threads, wait.owner, wait.owner_name)}"
            ),
        )
        for wait in waits
    )


def _own_thread(view: RankView) -> int:
    main = main_of(view.threads)
    return main.os_thread_id if main is not None and main.os_thread_id else view.capture.identity.pid


def _interpreter_in(threads: Sequence[ThreadStack], chain: MutexChain) -> bool:
    return chain.awaits_interpreter or any(t.owns_gil and t.os_thread_id in chain.threads for t in threads)


def _name(threads: Sequence[ThreadStack], number: int, name: str) -> str:
    """Return a thread for people, by Python's name of it or the kernel's, which is empty for a thread that has ended."""
    found = next((t for t in threads if t.os_thread_id == number), None)
    if found is not None and found.name:
        return f"thread {found.label}"
    return f"thread {number}" + (f" ({name})" if name else "")
