"""How the sources fare: a ledger of what was read, what failed and how long it took, kept for the metrics.

Looks of several jobs may overlap: each writes down its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hangwatch.outputs.metrics.view import SourceMetrics


@dataclass
class Look:
    """One look of a source while it lasts: it is told how much was tried and how much of that failed."""

    tried: int = 0
    failed: int = 0


@dataclass
class _Record:
    up: bool = True
    duration_s: float = 0.0
    reads: int = 0
    failures: int = 0


@dataclass
class Ledger:
    """The records of all sources, by name. A source is up unless its last look saw nothing of what it tried to see."""

    sources: dict[str, _Record] = field(default_factory=dict)
    captures: int = 0
    captures_sum_s: float = 0.0

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Time a close look at a job."""
        started_s = time.monotonic()
        yield
        self.captures += 1
        self.captures_sum_s += time.monotonic() - started_s

    @contextmanager
    def look(self, source: str) -> Iterator[Look]:
        """Time a look; one that tries nothing leaves no trace."""
        started_s = time.monotonic()
        look = Look()
        yield look
        if look.tried:
            record = self.sources.setdefault(source, _Record())
            record.duration_s = time.monotonic() - started_s
            record.up = look.failed < look.tried
            record.reads += look.tried
            record.failures += look.failed

    def metrics(self) -> tuple[SourceMetrics, ...]:
        """All records, as the metrics show them."""
        return tuple(SourceMetrics(n, r.up, r.duration_s, r.reads, r.failures) for n, r in self.sources.items())
