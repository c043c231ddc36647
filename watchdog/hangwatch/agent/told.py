"""An incident that was told, and who it is told to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from hangwatch.causes.diagnosis import Diagnosis
from hangwatch.model.incident import Incident

Announce = Callable[[Incident, Path | None], Awaitable[None]]


@dataclass
class Told:
    """An incident that was confirmed, and the capture and diagnosis it rests on."""

    incident: Incident
    diagnosis: Diagnosis
    path: Path | None
    active: bool = True
