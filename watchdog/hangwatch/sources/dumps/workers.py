"""Decodes files on all cores: each worker process reads one file at a time and returns the decoded value.

May import hangwatch.model, hangwatch.sources' own parts and the standard library. Workers are forked, which takes
milliseconds and imports nothing again; the commands that use them have no other threads at that time. They return
some 50 bytes per entry.
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
    """Yield every file with the result of ``decode``, in order; only a limited number are in work at a time.

    ``lost`` gives the result for a file at which a worker died (the kernel killed it for memory); the other files are
    still decoded.
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
        # Decode each in a worker of its own to see which file killed the worker; then go on as before.
        yield from ((file, _decode_alone(decode, file, lost)) for file in broken)


def _map_parallel(decode: Callable[[_In], _Out], files: Iterator[_In], broken: list[_In]) -> Iterator[tuple[_In, _Out]]:
    """Yield decoded files until a worker dies; those in work at that time are added to ``broken``."""
    under_way: deque[tuple[_In, Future[_Out]]] = deque()
    workers = _cores()
    pool = _start(workers)
    try:
        for file in files:
            under_way.append((file, Future()))  # counts as in work before ``submit``, which may fail
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
    """Set up a worker: ignore interrupts (the parent handles them), end with the parent, collect no garbage."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    gc.freeze()
    gc.disable()


def _cores() -> int:
    return len(os.sched_getaffinity(0))
