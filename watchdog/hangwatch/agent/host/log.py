"""Where the agent's own words go: to the console it was given, or as a line of JSON each to the same stream.

``say`` is for what a user is to read in any case; the logger ``hangwatch`` for the rest, quiet unless something is wrong. What
programs follow has an ``event`` and goes to a file of events too, in the same form.
"""

from __future__ import annotations

import datetime
import logging
import os

import msgspec
from rich.console import Console

from hangwatch.agent.host.events import EventFile
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
        self.console.file.write(_encode(record))
        self.console.file.flush()


def _encode(record: logging.LogRecord) -> str:
    """A record as one line of JSON."""
    at = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
    line: dict[str, object] = {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "message": record.getMessage().encode("utf-8", "backslashreplace").decode(),
        **getattr(record, _FIELDS, {}),
    }
    if record.exc_info:
        line["exception"] = logging.Formatter().formatException(record.exc_info)
    return msgspec.json.encode(line).decode() + "\n"


class Voice:
    """What the agent says: sentences with fields. As text only the sentences are shown. ``events``: where events go as well."""

    def __init__(self, console: Console, settings: LogSettings, events: EventFile | None = None) -> None:
        self.console = console
        self.events = events
        self.json = settings.format == "json"
        self.configure(settings)

    def configure(self, settings: LogSettings) -> None:
        """Log as set; ``HANGWATCH_LOG=debug`` shows everything, whatever the settings are."""
        self.json = settings.format == "json"
        logger = logging.getLogger("hangwatch")
        logger.handlers = [_JsonHandler(self.console) if self.json else _ConsoleHandler(self.console)]
        logger.setLevel(os.environ.get("HANGWATCH_LOG", settings.level).upper())
        logger.propagate = False

    def say(self, text: str, *, event: str = "", **fields: object) -> None:
        """One line of ours."""
        if not self.json:
            self.console.print(f"hangwatch: {text}", markup=False, highlight=False, soft_wrap=True)
        self.note(text, event=event, **fields)

    def note(self, text: str, *, event: str = "", **fields: object) -> None:
        """The same for programs alone."""
        record = logging.makeLogRecord(
            {"name": "hangwatch", "levelno": logging.INFO, "levelname": "INFO", "msg": clean(text)}
        )
        setattr(record, _FIELDS, {"event": event, **fields} if event else fields)
        if self.json:
            for handler in logging.getLogger("hangwatch").handlers:
                handler.handle(record)
        if event and self.events is not None and (why := self.events.write(_encode(record))):
            logging.getLogger("hangwatch").warning("%s", why)
