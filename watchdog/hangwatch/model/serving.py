"""A serving engine: its demand and its progress. Frozen values, no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec

EngineKind = Literal["vllm", "sglang", "tensorrt-llm"]

#: The name that its makers use.
TITLES: dict[str, str] = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


class EnginePart(msgspec.Struct, frozen=True):
    """One scheduler of an engine (there are several in data parallelism): its requests, and what shows its progress.

    ``marks``: values that change as it goes on: tokens, steps and finished requests since its start, and its use of
    the cache. ``tokens``: the first of these; None if it does not count them.
    """

    running: int
    waiting: int
    tokens: float | None
    marks: tuple[float, ...]


class EngineReading(msgspec.Struct, frozen=True):
    """What one answer with an engine's metrics says, by the label of its schedulers (empty if there is one)."""

    kind: EngineKind
    parts: dict[str, EnginePart]


#: How long an engine that ends because one of its processes is gone may take for that. vLLM 0.32 took 3 s on a busy machine.
ENDING_S = 10.0


class EngineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The current state of an engine.

    - Requests are those of its last answer, of the scheduler that has been stuck for longest if one is.
    - ``demand_s``: how long requests have run or waited without a break. ``still_s``: how long of that without
      progress. ``silent_s``: how long it has not answered, 0 while it does. ``patience_s``: how long without progress
      counts as a hang.
    - ``front``: the number (``model.numbers``) of the process that answers. ``beside``: the numbers of its processes
      that are no ranks, including the front.
    - ``tokens``: how many it has generated in all.
    - ``lost``: of its processes that ended since its last progress, the numbers of the first.
    """

    kind: EngineKind
    address: str
    running: int
    waiting: int
    demand_s: float
    still_s: float
    patience_s: float
    silent_s: float = 0.0
    tokens: float | None = None
    front: int | None = None
    beside: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name for people: ``vLLM at 127.0.0.1:8000``."""
        return f"{TITLES[self.kind]} at {self.address}"

    @property
    def demanded(self) -> bool:
        """True if it has requests."""
        return self.running + self.waiting > 0

    @property
    def suspected(self) -> bool:
        """True if it has been without progress for half of its patience, so that its processes are worth a capture.

        If one of its processes is gone, a quarter is enough.
        """
        return self.demanded and self.still_s >= self.patience_s / (4 if self.lost else 2)

    @property
    def abandoned(self) -> bool:
        """True if a process of it is gone and its server has not ended within about a quarter of the patience."""
        return self.demanded and self.still_s >= min(self.patience_s, max(self.patience_s / 4, ENDING_S))

    @property
    def stalled(self) -> bool:
        """True if it has requests, and no progress for its whole patience."""
        return self.demanded and self.still_s >= self.patience_s

    @property
    def says(self) -> str:
        """Its demand and progress, for people: ``12 requests wait and 3 run, no token for 95 s``."""
        verbs = ((self.waiting, "wait", "waits"), (self.running, "run", "runs"))
        counts = [(number, several if number > 1 else one) for number, several, one in verbs if number]
        first = [f"{n} request{'s' if n > 1 else ''} {verb}" for n, verb in counts[:1]]
        demand = " and ".join((*first, *(f"{n} {verb}" for n, verb in counts[1:])))
        if self.silent_s:
            return f"{demand} as of the last response, {self.silent_s:.0f} s ago; no token for {self.still_s:.0f} s"
        return f"{demand}, no token for {self.still_s:.0f} s"
