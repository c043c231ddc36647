"""How well the sources work: what was read, what failed and how long it took, for the metrics.

Readings of several jobs may overlap: each counts its own. May import the model and ``outputs.metrics.view``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hangwatch.model.capture import Gap
from hangwatch.outputs.metrics.view import SourceMetrics


@dataclass
class Reading:
    """One reading of a source: the reader sets how much was tried, and how much of that failed."""

    tried: int = 0
    failed: int = 0

    def count(self, found: Iterable[object]) -> None:
        """Count each item as one try; a ``Gap`` is a failed one."""
        failures = [isinstance(one, Gap) for one in found]
        self.tried, self.failed = len(failures), sum(failures)


@dataclass
class _Totals:
    up: bool = True
    duration_s: float = 0.0
    reads: int = 0
    failures: int = 0


@dataclass
class SourceHealth:
    """The totals of all sources, by name. A source is up unless its last reading failed completely."""

    sources: dict[str, _Totals] = field(default_factory=dict)
    captures: int = 0
    captures_sum_s: float = 0.0

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Time a capture of a job."""
        started_s = time.monotonic()
        yield
        self.captures += 1
        self.captures_sum_s += time.monotonic() - started_s

    @contextmanager
    def reading(self, source: str) -> Iterator[Reading]:
        """Time a reading; one that tries nothing is not counted."""
        started_s = time.monotonic()
        reading = Reading()
        yield reading
        if reading.tried:
            totals = self.sources.setdefault(source, _Totals())
            totals.duration_s = time.monotonic() - started_s
            totals.up = reading.failed < reading.tried
            totals.reads += reading.tried
            totals.failures += reading.failed

    def metrics(self) -> tuple[SourceMetrics, ...]:
        """Return all totals, as the metrics show them."""
        return tuple(SourceMetrics(n, t.up, t.duration_s, t.reads, t.failures) for n, t in self.sources.items())
