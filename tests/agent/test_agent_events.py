"""Events for programs: one line each, in one form, and never at the cost of whoever writes them."""

from __future__ import annotations

import io
import os
import select
from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.host.events import EventFile
from hangwatch.agent.host.log import Voice
from hangwatch.config.settings import LogSettings
from hangwatch.model.errors import UserError
from hangwatch.outputs.terminal.console import Console


def test_an_event_is_the_log_s_line(tmp_path: Path) -> None:
    """With a log in JSON both get the same object; with one in text people get the sentence; what is no event is not filed."""
    file, console = tmp_path / "events", Console(io.StringIO())
    events = EventFile(str(file))
    voice = Voice(console, LogSettings(format="json"), events)
    voice.say("it began", event="started", pid=7)
    assert isinstance(console.stream, io.StringIO)
    assert file.read_text() == console.stream.getvalue()
    assert msgspec.json.decode(file.read_bytes()) | {"time": ""} == {
        "time": "",
        "level": "info",
        "message": "it began",
        "event": "started",
        "pid": 7,
    }
    voice = Voice(console := Console(io.StringIO()), LogSettings(), events)
    voice.say("for people")
    voice.note("for programs", event="noted")
    assert isinstance(console.stream, io.StringIO)
    assert console.stream.getvalue() == "hangwatch: for people\n"
    assert [msgspec.json.decode(line)["message"] for line in file.read_text().splitlines()] == [
        "it began",
        "for programs",
    ]


def test_a_file_is_continued_and_private(tmp_path: Path) -> None:
    """What an earlier run has written stays."""
    file = tmp_path / "events"
    for text in ("a\n", "b\n"):
        events = EventFile(str(file))
        assert events.write(text) == ""
        events.close()
    assert file.read_text() == "a\nb\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_descriptor_is_not_inherited() -> None:
    """The job gets what it had, and not the events."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    events = EventFile(str(writing))
    assert not os.get_inheritable(writing)
    assert events.write("a\n") == ""
    assert os.read(reading, 10) == b"a\n"
    events.close()
    os.close(writing)
    assert os.read(reading, 10) == b"", "nobody else has it"
    os.close(reading)


def test_a_reader_that_goes_or_stops_is_said_once() -> None:
    """Nobody waits for it: the events end, with the reason."""
    for stop in (True, False):
        reading, writing = os.pipe()
        events = EventFile(str(writing))
        if stop:
            os.set_blocking(writing, False)
            while select.select([], [writing], [], 0)[1]:
                os.write(writing, b"x" * 4096)
            assert events.write("a\n") == f"no more events to --events {writing}: its reader has stopped reading"
        else:
            os.close(reading)
            assert events.write("a\n") == f"no more events to --events {writing}: Broken pipe"
        assert events.write("b\n") == ""
        os.close(writing)
        if stop:
            os.close(reading)


@pytest.mark.parametrize("where", ["999", "/nowhere/events", "/", "9" * 30])
def test_what_cannot_be_written_to_is_one_line(where: str) -> None:
    """Before anything is started, with what to give instead."""
    with pytest.raises(
        UserError, match=r"cannot be written to: .*; give a file or a descriptor that is open"
    ) as raised:
        EventFile(where)
    assert "\n" not in str(raised.value)
    reading, writing = os.pipe()
    with pytest.raises(UserError, match="Bad file descriptor"):
        EventFile(str(reading))
    os.close(reading)
    os.close(writing)
