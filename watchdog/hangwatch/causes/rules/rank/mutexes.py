"""A rank whose thread waits for a mutex of the C library: which thread has it is known, and whether that can ever release it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.ranks.mutexes import MutexChain, follow, steady_waits
from hangwatch.analysis.ranks.threads import main_of
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_process, at_stack, standing
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import MutexWait
from hangwatch.model.stacks import ThreadStack

#: Who has what is certain here; lines and system calls of threads say less.
_LESS = ("blocked-io", "child-stall", "init-missing-rank", "thread-stall")
CIRCLE = Signature("lock-deadlock", "mutexes-in-a-circle", "certain", beats=_LESS)
ABANDONED = Signature("lock-deadlock", "mutex-of-an-ended-thread", "certain", beats=_LESS)
#: Its owner may yet go on; why it does not, another cause may say.
HELD = Signature("lock-deadlock", "mutex-held", "likely")


def mutex_deadlock(case: Case) -> Match | None:
    """The rank's thread waits for a mutex: in a circle, of a thread that has ended, or of one that does not move."""
    for rank, view in standing(case):
        chain = follow(steady_waits(view.capture), _own_thread(view))
        if chain is None or _interpreter_in(view.threads, chain):
            continue  # where the interpreter's lock is among them it is gil-held, which says both
        row = CIRCLE if chain.cycle else ABANDONED if chain.abandoned else HELD
        evidence = (*at_mutexes(view, chain.waits), *at_stack(case, rank), *at_process(case, rank))
        return Match(row, f"Rank {rank}'s {view.who} {explain(view, chain)}", evidence)
    return None


def explain(view: RankView, chain: MutexChain) -> str:
    """The chain as a sentence about its first thread, without that thread's name."""
    owners = [_name(view.threads, wait.owner, wait.owner_name) for wait in chain.waits]
    if len(chain.waits) == len(chain.cycle) == 1:
        return "takes a mutex of the C library that it has already, and waits for itself."
    steps = [f"waits for a mutex of the C library that {owners[0]} has"]
    steps += [f"{owner} waits for one that {of} has" for owner, of in pairwise(owners)]
    said = "; ".join(steps)
    if chain.cycle:
        return f"{said}: none of them can go on."
    if chain.abandoned:
        return f"{said}. The process has no such thread: the mutex is never released."
    if chain.awaits_interpreter:
        return f"{said}, which waits for the interpreter's lock: none of them can go on."
    return f"{said}, which {f'is in {chain.last.owner_in}()' if chain.last.owner_in else 'runs'}."


def at_mutexes(view: RankView, waits: Sequence[MutexWait]) -> tuple[Evidence, ...]:
    """Each wait as evidence."""
    return tuple(
        Evidence(
            view.rank,
            "process",
            f"{_name(view.threads, wait.thread, wait.name)} waits for a mutex of the C library, whose owner is "
            f"{_name(view.threads, wait.owner, wait.owner_name)}",
        )
        for wait in waits
    )


def _own_thread(view: RankView) -> int:
    main = main_of(view.threads)
    return main.os_thread_id if main is not None and main.os_thread_id else view.capture.identity.pid


def _interpreter_in(threads: Sequence[ThreadStack], chain: MutexChain) -> bool:
    return chain.awaits_interpreter or any(t.owns_gil and t.os_thread_id in chain.threads for t in threads)


def _name(threads: Sequence[ThreadStack], number: int, name: str) -> str:
    """A thread for people: Python's name of it, or the kernel's, which is empty for one that is no more."""
    found = next((t for t in threads if t.os_thread_id == number), None)
    if found is not None and found.name:
        return f"thread {found.label}"
    return f"thread {number}" + (f" ({name})" if name else "")
