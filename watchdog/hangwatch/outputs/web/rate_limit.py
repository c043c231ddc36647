"""Rate limiting of requests. Pure: the caller passes the time; imports the standard library only."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

#: Maximum number of callers tracked; beyond it the least recently seen one is dropped.
_CALLERS_LIMIT = 1024


@dataclass
class RateLimit:
    """A token bucket per caller: ``burst`` requests at once, ``per_s`` per second."""

    per_s: float
    burst: float
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def allows(self, caller: str, now_s: float) -> bool:
        """Whether this caller may make a request now; an allowed request is counted."""
        left, at_s = self._left.pop(caller, (self.burst, now_s))
        left = min(self.burst, left + (now_s - at_s) * self.per_s)
        allowed = left >= 1.0
        self._left[caller] = (left - 1.0 if allowed else left, now_s)
        while len(self._left) > _CALLERS_LIMIT:
            self._left.popitem(last=False)
        return allowed
