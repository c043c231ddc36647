"""An incident that was told: how it is, when its bundle is on disk, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hangwatch.diagnosis.document import ended
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import BundleError, write_bundle

log = logging.getLogger("hangwatch")

Announce = Callable[[Incident, Path | None], Awaitable[None]]


@dataclass
class Told:
    """An incident that was confirmed, and the capture and diagnosis it rests on."""

    incident: Incident
    diagnosis: Diagnosis
    path: Path | None
    active: bool = True
    #: Another node has told of it, and will tell of its end.
    heard: bool = False
    #: Its bundle holds the ranks of this node alone.
    partial: bool = False

    async def close(self, state_dir: Path, announce: Announce, at_ns: int) -> None:
        """The incident is over: its bundle and those who were told of it learn so."""
        self.active = False
        self.incident = ended(self.incident, at_ns)
        if self.path is not None:
            try:
                await asyncio.to_thread(write_bundle, state_dir, self.incident, None)
            except BundleError as error:
                log.warning("%s", error)
        await announce(self.incident, self.path)


async def tell_nobody(incident: Incident, path: Path | None) -> None:
    """An ``Announce`` for what is no news to anybody here."""
    del incident, path


async def keep(state_dir: Path, incident: Incident, diagnosis: Diagnosis, capture: Capture) -> Told:
    """Write the bundle, before anybody is told; where it cannot be written, the incident says so."""
    path: Path | None = None
    try:
        path = await asyncio.to_thread(write_bundle, state_dir, incident, capture)
    except BundleError as error:
        log.warning("%s", error)
        incident = msgspec.structs.replace(incident, missing=(*incident.missing, f"bundle: {error}"))
    return Told(incident, diagnosis, path)
