"""Sends the metrics to OTLP endpoints, regularly and at the end. May import the metrics and asyncio.

Nothing is queued: values that could not be sent are replaced by the next ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Metric

from hangwatch.outputs.push.otlp.endpoint import OtlpEndpoint
from hangwatch.outputs.push.transports import Complaints

#: The specification's default of OTEL_METRIC_EXPORT_INTERVAL, which is in milliseconds.
_INTERVAL_MS = 60_000


class MetricsFeed:
    """Sends ``families`` to endpoints, each with a name that may be logged.

    All methods must be called in one event loop.
    """

    def __init__(self, endpoints: Sequence[tuple[str, OtlpEndpoint]], families: Callable[[], Iterable[Metric]]) -> None:
        self._streams = [_Stream(name, endpoint, families) for name, endpoint in endpoints]

    def start(self) -> None:
        """Start sending; returns at once."""
        for stream in self._streams:
            stream.start()

    async def close(self, grace_s: float) -> None:
        """Send the last values, within ``grace_s`` seconds."""
        await asyncio.gather(*(stream.close(grace_s) for stream in self._streams))


class _Stream:
    """One endpoint, in a thread of its own."""

    def __init__(self, name: str, endpoint: OtlpEndpoint, families: Callable[[], Iterable[Metric]]) -> None:
        self._endpoint, self._families = endpoint, families
        self._complaints = Complaints(name)
        self._thread = ThreadPoolExecutor(1, "hangwatch otlp metrics")
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="metrics to otlp")

    async def close(self, grace_s: float) -> None:
        self._closing.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._task, grace_s)
        self._endpoint.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop, interval_s = asyncio.get_running_loop(), _interval_s()
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), interval_s)
            last = self._closing.is_set()
            answer = await loop.run_in_executor(self._thread, lambda: self._endpoint.send_metrics(self._families()))
            self._complaints.hear(answer)
            if last:
                return


def _interval_s() -> float:
    given = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    return (int(given) if given.isdecimal() and int(given) > 0 else _INTERVAL_MS) / 1000
