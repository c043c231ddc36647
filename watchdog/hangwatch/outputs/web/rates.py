"""How often somebody may ask. Pure: the clock is the caller's; imports the standard library only."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

#: Callers remembered at once; beyond it the one that was quiet longest is forgotten.
_CALLERS_LIMIT = 1024


@dataclass
class Rate:
    """``burst`` requests at once and ``per_s`` a second from each caller."""

    per_s: float
    burst: float
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def allows(self, caller: str, now_s: float) -> bool:
        """Whether a request of this caller may be answered now; it is counted if so."""
        left, at_s = self._left.pop(caller, (self.burst, now_s))
        left = min(self.burst, left + (now_s - at_s) * self.per_s)
        allowed = left >= 1.0
        self._left[caller] = (left - 1.0 if allowed else left, now_s)
        while len(self._left) > _CALLERS_LIMIT:
            self._left.popitem(last=False)
        return allowed
