"""A serving engine: what is asked of it, and what comes out. Frozen values, no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec

EngineKind = Literal["vllm", "sglang", "tensorrt-llm"]

#: What each is called by its makers.
TITLES: dict[str, str] = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


class EnginePart(msgspec.Struct, frozen=True):
    """One scheduler of an engine (there are several in data parallelism): its requests, and whatever counts its progress.

    ``marks`` are values that change as it goes on: tokens, steps and finished requests since its start, and its use of the cache.
    ``tokens`` is the first of these, None where it counts none.
    """

    running: int
    waiting: int
    tokens: float | None
    marks: tuple[float, ...]


class EngineReading(msgspec.Struct, frozen=True):
    """What one answer of an engine's metrics says, by the label of its schedulers (empty where there is one)."""

    kind: EngineKind
    parts: dict[str, EnginePart]


#: How long an engine that ends because one of its processes is gone may take for that. vLLM 0.32 took 3 s on a busy machine.
ENDING_S = 10.0


class EngineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine as it is now. Requests are those of its last answer, of the scheduler that has been stuck for longest if one is.

    ``demand_s``: for how long requests have run or waited without a break; ``still_s``: for how long, of that, nothing has come
    out; ``silent_s``: since when it has not answered, 0 while it does; ``patience_s``: how long nothing may come out before
    that is a hang. ``front``: the number (``model.numbers``) of the process that answers; ``beside``: the numbers of its
    processes that are no ranks, the front among them. ``tokens``: how many it had made in all. ``lost``: of those that have
    ended since something came out, the numbers of the first.
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
        """What people read: ``vLLM at 127.0.0.1:8000``."""
        return f"{TITLES[self.kind]} at {self.address}"

    @property
    def demanded(self) -> bool:
        """Whether anybody waits for it."""
        return self.running + self.waiting > 0

    @property
    def suspected(self) -> bool:
        """Whether nothing has come out for so long that its processes are worth a capture: half of its patience.

        A quarter is enough where one of them is gone.
        """
        return self.demanded and self.still_s >= self.patience_s / (4 if self.lost else 2)

    @property
    def abandoned(self) -> bool:
        """Whether one of its processes is gone and its server has not ended since, for a quarter of the patience or so."""
        return self.demanded and self.still_s >= min(self.patience_s, max(self.patience_s / 4, ENDING_S))

    @property
    def stalled(self) -> bool:
        """Whether requests are there, and nothing has come out for its whole patience."""
        return self.demanded and self.still_s >= self.patience_s

    @property
    def says(self) -> str:
        """Demand against progress, for people: ``12 requests wait and 3 run, no token for 95 s``."""
        verbs = ((self.waiting, "wait", "waits"), (self.running, "run", "runs"))
        counts = [(number, several if number > 1 else one) for number, several, one in verbs if number]
        first = [f"{n} request{'s' if n > 1 else ''} {verb}" for n, verb in counts[:1]]
        demand = " and ".join((*first, *(f"{n} {verb}" for n, verb in counts[1:])))
        if self.silent_s:
            return f"{demand} by its last answer, {self.silent_s:.0f} s ago; no token for {self.still_s:.0f} s"
        return f"{demand}, no token for {self.still_s:.0f} s"
