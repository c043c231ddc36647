"""Threads of one rank that wait for mutexes of the C library, and how that leads from one to the next. Pure.

A mutex names the thread that holds it. So these are the only waits within a process that are certain at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.model.capture import RankCapture
from hangwatch.model.processes import GIL, MutexWait


@dataclass(frozen=True)
class MutexChain:
    """What a thread waits for: its own wait, that of the thread which holds this mutex, and so on; at least one.

    ``cycle``: the waits of a circle that the chain ends in; empty if it ends in a thread that waits for no mutex.
    """

    waits: tuple[MutexWait, ...]
    cycle: tuple[MutexWait, ...] = ()

    @property
    def last(self) -> MutexWait:
        """The last wait, whose owner ends the chain."""
        return self.waits[-1]

    @property
    def abandoned(self) -> bool:
        """True if the thread at the end of the chain does not exist: its mutex is never released."""
        return not self.last.owner_name

    @property
    def awaits_interpreter(self) -> bool:
        """True if the thread at the end of the chain waits for the interpreter's lock."""
        return self.last.owner_in == GIL

    @property
    def threads(self) -> frozenset[int]:
        """All threads in the chain, by ``os_thread_id``."""
        return frozenset(n for wait in self.waits for n in (wait.thread, wait.owner))


def steady_waits(capture: RankCapture) -> Mapping[int, MutexWait]:
    """Return, by thread, the waits that the last two samples both show with the same owner: the others are contention."""
    samples = capture.processes[-2:]
    if len(samples) < 2:
        return {}
    before = {(wait.thread, wait.owner) for wait in samples[0].mutexes}
    return {wait.thread: wait for wait in samples[1].mutexes if (wait.thread, wait.owner) in before}


def follow(waits: Mapping[int, MutexWait], thread: int) -> MutexChain | None:
    """Return the chain of waits from a thread on; None if it waits for no mutex."""
    chain: list[MutexWait] = []
    while thread in waits:
        wait = waits[thread]
        if wait in chain:
            return MutexChain(tuple(chain), tuple(chain[chain.index(wait) :]))
        chain.append(wait)
        thread = wait.owner
    return MutexChain(tuple(chain)) if chain else None


def find_cycles(capture: RankCapture) -> tuple[tuple[MutexWait, ...], ...]:
    """Return all circles of threads that wait for each other's mutexes, each once."""
    waits = steady_waits(capture)
    chains = (follow(waits, thread) for thread in sorted(waits))
    found = {
        frozenset(w.thread for w in chain.cycle): chain.cycle for chain in chains if chain is not None and chain.cycle
    }
    return tuple(found.values())
