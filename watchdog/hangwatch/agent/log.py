"""Where the agent's own log goes: to the console it was given, quiet unless something is wrong."""

from __future__ import annotations

import logging
import os

from rich.console import Console


class _ConsoleHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        self.console.print(f"hangwatch: {self.format(record)}", markup=False, highlight=False, soft_wrap=True)


def log_to(console: Console) -> None:
    """Send warnings (with ``HANGWATCH_LOG=debug``: everything) to the console."""
    logger = logging.getLogger("hangwatch")
    logger.handlers = [_ConsoleHandler(console)]
    logger.setLevel(os.environ.get("HANGWATCH_LOG", "warning").upper())
    logger.propagate = False
