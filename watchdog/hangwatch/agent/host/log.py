"""Where the agent's own messages go: to its console as text, or to the same stream as one line of JSON each.

``say`` is for what users must read; the logger ``hangwatch`` for the rest, quiet unless something is wrong. Messages
for programs have an ``event`` and go to a file of events too, in the same form.
"""

from __future__ import annotations

import datetime
import logging
import os

import msgspec

from hangwatch.agent.host.events import EventFile
from hangwatch.config.settings import LogSettings
from hangwatch.outputs.sanitize import clean
from hangwatch.outputs.terminal.console import Console

#: Attribute of a log record that holds its own fields.
_FIELDS = "hangwatch_fields"


class _Handler(logging.Handler):
    """Writes records to the console, as text or, if ``json``, as one object a line."""

    def __init__(self, console: Console, *, json: bool) -> None:
        super().__init__()
        self.console, self.json = console, json

    def emit(self, record: logging.LogRecord) -> None:
        if self.json:
            self.console.stream.write(_encode(record))
            self.console.stream.flush()
        else:
            self.console.say(f"hangwatch: {self.format(record)}")


def _encode(record: logging.LogRecord) -> str:
    """Return a record as one line of JSON: ``time`` (RFC 3339), ``level``, ``message``, its fields, ``exception`` if any."""
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
    """What the agent says: sentences with fields. As text only the sentences are shown.

    ``events``: where events go as well.
    """

    def __init__(self, console: Console, settings: LogSettings, events: EventFile | None = None) -> None:
        self.console = console
        self.events = events
        self.json = settings.format == "json"
        self.configure(settings)

    def configure(self, settings: LogSettings) -> None:
        """Log as set; ``HANGWATCH_LOG=debug`` shows everything, whatever the settings are."""
        self.json = settings.format == "json"
        logger = logging.getLogger("hangwatch")
        logger.handlers = [_Handler(self.console, json=self.json)]
        logger.setLevel(os.environ.get("HANGWATCH_LOG", settings.level).upper())
        logger.propagate = False

    def say(self, text: str, *, event: str = "", **fields: object) -> None:
        """Write one message for users."""
        if not self.json:
            self.console.say(f"hangwatch: {text}")
        self.note(text, event=event, **fields)

    def note(self, text: str, *, event: str = "", **fields: object) -> None:
        """Write one message for programs alone."""
        record = logging.makeLogRecord(
            {"name": "hangwatch", "levelno": logging.INFO, "levelname": "INFO", "msg": clean(text)}
        )
        setattr(record, _FIELDS, {"event": event, **fields} if event else fields)
        if self.json:
            for handler in logging.getLogger("hangwatch").handlers:
                handler.handle(record)
        if event and self.events is not None and (why := self.events.write(_encode(record))):
            logging.getLogger("hangwatch").warning("%s", why)
