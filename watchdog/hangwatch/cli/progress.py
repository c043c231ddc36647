"""A progress bar for work that takes long: on a terminal only, on stderr, and not before it has taken a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hangwatch.cli.common import stderr_console

_PATIENCE_S = 0.5
Report = Callable[[int, "int | None"], None]


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Report]:
    """A function to be told how much is done, and of how much (None: nobody knows)."""
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=None)
    began = time.monotonic()

    def report(done: int, total: int | None) -> None:
        if not console.is_terminal:
            return
        if not bar.live.is_started and time.monotonic() - began >= _PATIENCE_S:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bar.live.is_started:  # else it would print an empty line all the same
            bar.stop()
