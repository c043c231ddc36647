"""What a rank left when its program ended: the end of its record, and what ended it."""

from __future__ import annotations

from typing import Literal

import msgspec

from hangwatch.model.collectives import FlightRecord
from hangwatch.model.stacks import StackSample

LEFT_VERSION = 1


class Left(msgspec.Struct, frozen=True):
    """The last words of one process, file ``RUN_DIR/ranks/PID.left`` (``hangwatch/probe/leaving.py`` writes it).

    - ``how``: ``exit``: its Python program ended; ``terminate``: C++ ended the process by ``std::terminate``, as Gloo
      does; ``asked``: another rank had failed, and this one was ended later, without time for other last words.
    - ``error``: the exception that ended the program (of a chain the first): where it was raised, and what; of a C++
      exception its type. Empty if there was none, or if not known (``reported`` false).
    - ``stack``: the calls in which it was raised, or where the main thread was then; None if the program ended
      without an exception.
    """

    pid: int
    start_ticks: int
    at_ns: int
    how: Literal["exit", "terminate", "asked"]
    rank: int | None
    reported: bool
    error: tuple[str, ...]
    stack: StackSample | None
    flight: FlightRecord | None
