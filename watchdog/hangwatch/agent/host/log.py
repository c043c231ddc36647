"""Where the agent's own words go: to the console it was given, or as a line of JSON each to the same stream.

``say`` is for what a user is to read in any case; the logger ``hangwatch`` for the rest, quiet unless something is wrong.
"""

from __future__ import annotations

import datetime
import logging
import os

import msgspec
from rich.console import Console

from hangwatch.config.settings import LogSettings
from hangwatch.outputs.sanitize import clean

#: Attribute of a log record that holds its own fields.
_FIELDS = "hangwatch_fields"


class _ConsoleHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        self.console.print(f"hangwatch: {self.format(record)}", markup=False, highlight=False, soft_wrap=True)


class _JsonHandler(logging.Handler):
    """One object a line: ``time`` (RFC 3339), ``level``, ``message``, the record's fields, ``exception`` where there is one."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage().encode("utf-8", "backslashreplace").decode(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        self.console.file.write(msgspec.json.encode(line).decode() + "\n")
        self.console.file.flush()


class Voice:
    """What the agent says: sentences with fields. As text only the sentences are shown."""

    def __init__(self, console: Console, settings: LogSettings) -> None:
        self.console = console
        self.json = settings.format == "json"
        self.configure(settings)

    def configure(self, settings: LogSettings) -> None:
        """Log as set; ``HANGWATCH_LOG=debug`` shows everything, whatever the settings are."""
        self.json = settings.format == "json"
        logger = logging.getLogger("hangwatch")
        logger.handlers = [_JsonHandler(self.console) if self.json else _ConsoleHandler(self.console)]
        logger.setLevel(os.environ.get("HANGWATCH_LOG", settings.level).upper())
        logger.propagate = False

    def say(self, text: str, **fields: object) -> None:
        """One line of ours."""
        if not self.json:
            self.console.print(f"hangwatch: {text}", markup=False, highlight=False, soft_wrap=True)
            return
        record = logging.makeLogRecord(
            {"name": "hangwatch", "levelno": logging.INFO, "levelname": "INFO", "msg": clean(text)}
        )
        setattr(record, _FIELDS, fields)
        for handler in logging.getLogger("hangwatch").handlers:
            handler.handle(record)
