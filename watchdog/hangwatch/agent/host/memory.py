"""Bounds the memory of an agent that runs for months. May import the standard library only.

Every capture has threads that come and go (sources that may hang, pages, bundles), and what they hold for a moment is
large: a syntax tree, a recorder's dump, a report. glibc gives each new thread one of up to eight heaps per core, none
of which shrinks while anything in it lives. Measured on two cores: 133 of 232 MB after a quarter of an hour with jobs
coming and going. So there are two heaps, and large pieces are mapped singly and returned at once. Other C libraries
do so by themselves.
"""

from __future__ import annotations

import ctypes
import gc

#: From malloc.h. Each fixes a value that glibc would otherwise adapt to the largest size seen.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_HEAPS = 2
_LARGE_BYTES = 256 << 10
#: After how many new objects Python looks for cycles; its default is 700.
_COLLECTED = 50_000


def bound_heaps() -> None:
    """Let this process have few heaps; does nothing without glibc.

    Call it before the first thread is started.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in (
            (_M_ARENA_MAX, _HEAPS),
            (_M_MMAP_THRESHOLD, _LARGE_BYTES),
            (_M_TRIM_THRESHOLD, _LARGE_BYTES),
        ):
            mallopt(option, value)


def give_back() -> None:
    """Give free pages in the middle of heaps back to the system; takes milliseconds."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(ctypes.c_size_t(0))


def collect_less_often() -> None:
    """Let Python collect cycles less often.

    While a large capture is read, which has none, the collector scans everything again and again: two thirds of the
    time of reading.
    """
    gc.set_threshold(_COLLECTED)
