"""Which bundles are kept: the choice is pure, the sweep is the only place that ever removes one.

May import ``config.settings``, the outputs and the standard library. An incident that is open is never removed, whatever its
size; anything that is not one of our bundles (a link, a file, another folder) is never touched.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hangwatch.config.settings import Retention
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import is_incident_id

log = logging.getLogger("hangwatch")

_DAY_S = 86400.0
_GB_BYTES = 1e9
_REMOVED = ".removed-"


@dataclass(frozen=True)
class StoredBundle:
    """A bundle as it lies there. ``changed_s``: when its document was last written, seconds since the epoch."""

    name: str
    changed_s: float
    size_bytes: int
    open: bool


def choose_expired(bundles: Iterable[StoredBundle], limits: Retention, now_s: float) -> tuple[str, ...]:
    """Return the names of the bundles to remove, oldest first. Open ones are never removed, but count towards the limits."""
    stored = sorted(bundles, key=lambda one: (one.changed_s, one.name))
    count, size_bytes = len(stored), sum(one.size_bytes for one in stored)
    expired = []
    for one in stored:
        old = now_s - one.changed_s > limits.max_age_days * _DAY_S
        many = count > limits.max_count or size_bytes > limits.max_size_gb * _GB_BYTES
        if one.open or not (old or many):
            continue
        expired.append(one.name)
        count, size_bytes = count - 1, size_bytes - one.size_bytes
    return tuple(expired)


def sweep(state_dir: Path, limits: Retention) -> tuple[str, ...]:
    """Remove what is beyond the limits, and what an interrupted sweep has left; the names of the bundles. Never raises.

    A bundle is renamed first, so that nobody ever finds half of one. May take long: it belongs in a thread.
    """
    folder = state_dir / "incidents"
    removed = []
    try:
        for entry in os.scandir(folder):
            if entry.name.startswith(_REMOVED) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
        for name in choose_expired(_stored(state_dir), limits, time.time()):
            away = folder / f"{_REMOVED}{name}"
            (folder / name).rename(away)
            shutil.rmtree(away, ignore_errors=True)
            removed.append(name)
    except OSError as error:
        log.warning("old incidents cannot be removed from %s: %s", folder, error.strerror or error)
    return tuple(removed)


def _stored(state_dir: Path) -> Iterator[StoredBundle]:
    known = {summary.id: summary for summary in Archive(state_dir).list()}
    for entry in list(os.scandir(state_dir / "incidents")):
        if not is_incident_id(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        place, summary = Path(entry.path), known.get(entry.name)
        # A writer that was killed leaves a capture without its document.
        document = place / ("incident.json" if summary is not None else "capture.json")
        if document.is_file():
            changed_s = document.stat().st_mtime
            yield StoredBundle(entry.name, changed_s, _size_bytes(place), summary is not None and summary.open)


def _size_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).lstat().st_size
            except OSError:
                continue
    return total
