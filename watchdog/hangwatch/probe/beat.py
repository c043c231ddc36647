"""Writes the beat's file: what ``model.beats.Beat`` describes, replaced whole. Standard library only."""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH105

from __future__ import annotations

import json
import math
import os
from typing import Any

BEAT_VERSION = 1
BEAT_PERIOD_S = 0.5


def encode_beat(fields: dict[str, Any], groups: list[str], telemetry: str = "") -> bytes:
    """Return the JSON of one beat.

    ``groups`` and ``telemetry`` are JSON already, because they are long and rarely change.
    """
    head = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    tail = ',"telemetry":%s' % telemetry if telemetry else ""
    return ('%s,"groups":[%s]%s}' % (head[:-1], ",".join(groups), tail)).encode("utf-8", "replace")


def finite(value: Any) -> Any:
    """Return NaN and infinities as ``nan``, ``inf`` and ``-inf``, which JSON lacks; other values unchanged."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_whole(path: str, content: bytes) -> None:
    """Replace the file in one step, so that no reader ever sees half of it. Raises OSError."""
    temporary = path + ".new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
