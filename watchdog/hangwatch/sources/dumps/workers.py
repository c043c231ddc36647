"""Files decoded by all cores: worker processes that read one file each at a time and hand back what it comes down to.

May import hangwatch.model, hangwatch.sources' own parts and the standard library. Workers are forked, which costs milliseconds
and imports nothing again; a command that uses them has no other threads by then. What they hand back is some 50 bytes an entry.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")

#: Fewer files than this are decoded here and now: starting workers would take longer.
_WORTH_IT = 16
#: How many files a worker has waiting, so that it never waits itself.
_AHEAD = 4
_PR_SET_PDEATHSIG = 1


def map_files(
    decode: Callable[[_In], _Out], files: Iterable[_In], lost: Callable[[_In], _Out]
) -> Iterator[tuple[_In, _Out]]:
    """Every file with what ``decode`` makes of it, in order, a bounded number of them under way at a time.

    ``lost`` says it of a file at which a worker died (the kernel ended it for memory); the others are decoded all the same.
    """
    waiting = iter(files)
    first = list(itertools.islice(waiting, _WORTH_IT))
    if len(first) < _WORTH_IT or _cores() < 2:
        yield from ((file, decode(file)) for file in itertools.chain(first, waiting))
        return
    files = itertools.chain(first, waiting)
    while True:
        broken: list[_In] = []
        yield from _map_parallel(decode, files, broken)
        if not broken:
            return
        # Whose fault it was shows when each is decoded by a worker of its own; the others go on as before.
        yield from ((file, _decode_alone(decode, file, lost)) for file in broken)


def _map_parallel(decode: Callable[[_In], _Out], files: Iterator[_In], broken: list[_In]) -> Iterator[tuple[_In, _Out]]:
    """Files decoded until there are no more, or until a worker dies: those that were under way then go into ``broken``."""
    under_way: deque[tuple[_In, Future[_Out]]] = deque()
    workers = _cores()
    pool = _start(workers)
    try:
        for file in files:
            under_way.append((file, Future()))  # it is under way before it is handed over, which may fail
            under_way[-1] = (file, pool.submit(decode, file))
            if len(under_way) >= workers * _AHEAD:
                yield under_way[0][0], under_way[0][1].result()
                under_way.popleft()
        while under_way:
            yield under_way[0][0], under_way[0][1].result()
            under_way.popleft()
    except BrokenProcessPool:
        broken += [file for file, _ in under_way]
    finally:
        pool.shutdown(cancel_futures=True)


def _decode_alone(decode: Callable[[_In], _Out], file: _In, lost: Callable[[_In], _Out]) -> _Out:
    with _start(1) as pool:
        try:
            return pool.submit(decode, file).result()
        except BrokenProcessPool:
            return lost(file)


def _start(workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(os.getpid(),))


def _begin(parent: int) -> None:
    """In a worker: an interrupt is the parent's to handle, its end is ours, and what a dump holds is no garbage."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    gc.freeze()
    gc.disable()


def _cores() -> int:
    return len(os.sched_getaffinity(0))
