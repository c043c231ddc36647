"""Reads what jobs write, in a thread: a file on a file system that hangs must not hold up the tick, which would find it.

May import the model and ``sources.training``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from dataclasses import dataclass, field

from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import LoggedStep
from hangwatch.sources.training.live_outputs import LiveOutputs, WatchedRank

log = logging.getLogger("hangwatch")

_PERIOD_S = 1.0
#: How long the end of a job waits for its files to be read to their end.
_FINISH_S = 0.5
#: Steps that wait for the tick; of more, the oldest are dropped, as of any long series.
_WAITING_LIMIT = 20_000


@dataclass
class OutputReader:
    """The files of one job, read once a second from ``start`` until ``stop``. ``patterns``: the user's globs."""

    patterns: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    _ranks: tuple[WatchedRank, ...] = ()
    _steps: deque[LoggedStep] = field(default_factory=lambda: deque(maxlen=_WAITING_LIMIT))
    _finishing: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self, ranks: tuple[WatchedRank, ...]) -> None:
        """Read the files of these ranks from now on; starts the thread."""
        self._ranks = ranks
        if self._thread is None and ranks:
            self._thread = threading.Thread(target=self._run, name="hangwatch-output", daemon=True)
            self._thread.start()

    def take(self) -> list[LoggedStep]:
        """The steps that were read since the last call."""
        taken = []
        while self._steps:
            taken.append(self._steps.popleft())
        return taken

    def stop(self) -> None:
        """Read no more. A read that hangs in the kernel is left to it: the thread keeps nobody from leaving."""
        self._stop.set()

    async def finish(self) -> None:
        """Read once more, to the end, and no more then; whoever is to exit does not wait for files that hang."""
        self._finishing = True
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _FINISH_S)

    def _run(self) -> None:
        files = LiveOutputs(self.patterns)
        try:
            while not self._stop.is_set():
                self._poll(files)
                self._stop.wait(_PERIOD_S)
            if self._finishing:
                self._poll(files)
        finally:
            files.close()

    def _poll(self, files: LiveOutputs) -> None:
        try:
            steps, self.gaps = files.poll(self._ranks)
            self._steps.extend(steps)
        except OSError as error:
            self.gaps = (Gap("log", f"what the job writes cannot be read: {error}"),)
