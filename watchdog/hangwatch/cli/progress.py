"""A progress bar on stderr, shown only on a terminal and only if the work takes long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hangwatch.cli.common import stderr_console

_SHOW_AFTER_S = 0.5
Report = Callable[[int, "int | None"], None]


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Report]:
    """Yields ``report(done, total)``; ``total`` is None if it is not known."""
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=None)
    began = time.monotonic()

    def report(done: int, total: int | None) -> None:
        if not console.is_terminal:
            return
        if not bar.live.is_started and time.monotonic() - began >= _SHOW_AFTER_S:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bar.live.is_started:  # stopping a bar that never started prints an empty line
            bar.stop()
