"""Recordings of a terminal: asciicast v2, as docs/record.py writes it, with nothing of the machine that they were made on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASTS = sorted((ROOT / "docs" / "recordings").glob("*.cast"))
#: Where neutral names of folders begin (``tests/neutral.py``); a relative path or an address is none.
_FOLDER = re.compile(r"(?<![\w.:/<-])/\w[^\s:'\"]*")
_NEUTRAL = ("/opt/venv/", "/usr/lib/python3.11", "/srv/train/", "/tmp/hangwatch-demo-")


def faults(text: str) -> list[str]:
    """What is wrong with a recording: its form, or what it gives away."""
    first, *rest = text.splitlines()
    header, events = json.loads(first), [json.loads(line) for line in rest]
    found = [
        f"header: {name}"
        for name, value in {"version": 2, "title": "hangwatch demo"}.items()
        if header.get(name) != value
    ]
    found += [f"header: {name}" for name in ("width", "height") if not isinstance(header.get(name), int)]
    found += [
        "an event is not [seconds, 'o', text]"
        for at, kind, shown in events
        if kind != "o" or not isinstance(shown, str)
    ]
    times = [at for at, _, _ in events]
    if times != sorted(times) or times[0] < 0:
        found.append("times go back")
    screen = "".join(shown for _, _, shown in events)
    found += [f"folder: {name}" for name in _FOLDER.findall(screen) if not name.startswith(_NEUTRAL)]
    found += [f"host: {name}" for name in re.findall(r"ranks?\) on (\S+)\r$", screen, re.MULTILINE) if name != "node0"]
    return found


@pytest.mark.parametrize("path", CASTS, ids=lambda path: path.name)
def test_a_recording_can_be_played_and_gives_nothing_away(path: Path) -> None:
    """It is small, its times increase, and it shows a verdict to its end."""
    text = path.read_text(encoding="utf-8")
    assert len(text) < 100_000
    assert faults(text) == []
    assert "DEADLOCK, proven" in text
    assert "PASS: hang found" in text.splitlines()[-2]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"version": 2', '"version": 1', "header: version"),
        ('"width": 110, ', "", "header: width"),
        ("[0.4, ", "[900.0, ", "times go back"),
        ('"o", "$ "', '"i", "$ "', "an event is not"),
        ("/srv/train/", "/home/somebody/", "folder: /home/somebody/tuple_labels.py"),
        (" on node0", " on login7", "host: login7"),
    ],
)
def test_a_fault_is_found(old: str, new: str, says: str) -> None:
    """Planted ones: a format that is none, a time, a folder and a host of somebody's own."""
    (path,) = CASTS
    changed = path.read_text(encoding="utf-8").replace(old, new)
    assert any(fault.startswith(says) for fault in faults(changed))
