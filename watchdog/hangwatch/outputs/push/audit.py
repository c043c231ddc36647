"""The audit record of an incident: which receivers were notified and which actions were taken.

It is stored in the bundle (``audit.json``), so that a restarted agent does not notify or act twice, and an engineer can see
later what was done. Nothing is recorded for an incident whose bundle could not be written. May import msgspec and the outputs.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import msgspec

from hangwatch.outputs.bundle.files import encode, write_files
from hangwatch.outputs.push.notifications import Notification

log = logging.getLogger("hangwatch")

FILE = "audit.json"
SCHEMA = "hangwatch.audit/1"


class ActionTaken(msgspec.Struct, frozen=True):
    """One action that was taken.

    Its start (seconds since the epoch), its name (``config.settings.ACTIONS``), whether it was a dry run, and its
    outcome.
    """

    at_s: float
    action: str
    dry_run: bool
    outcome: str


class AuditRecord(msgspec.Struct, frozen=True):
    """``notified`` maps a receiver (without the secret part of its URL) to a digest of the last notification it accepted."""

    schema: str = SCHEMA
    notified: dict[str, str] = {}
    actions: tuple[ActionTaken, ...] = ()


def read_audit(bundle: Path) -> AuditRecord:
    """Return the record so far; empty if the file is missing or unreadable."""
    try:
        return msgspec.json.decode((bundle / FILE).read_bytes(), type=AuditRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return AuditRecord()


def _write(bundle: Path, record: AuditRecord) -> None:
    try:
        write_files(bundle, [(FILE, [encode(record)])])
    except OSError as error:
        log.warning("cannot write %s to %s: %s", FILE, bundle, error.strerror or error)


def record_action(bundle: Path, taken: ActionTaken) -> None:
    """Record an action, replacing an entry with the same start time: an action is recorded before and after it ran."""
    before = read_audit(bundle)
    others = tuple(one for one in before.actions if one.at_s != taken.at_s)
    _write(bundle, msgspec.structs.replace(before, actions=(*others, taken)))


def was_notified(notification: Notification, receiver: str) -> bool:
    """True if the receiver has accepted this notification, from this or an earlier agent."""
    return notification.bundle is not None and read_audit(Path(notification.bundle)).notified.get(receiver) == _digest(
        notification
    )


def record_notified(notification: Notification, receiver: str) -> None:
    """Record that the receiver has accepted the notification."""
    if notification.bundle is None or not Path(notification.bundle).is_dir():
        return
    before = read_audit(Path(notification.bundle))
    _write(
        Path(notification.bundle),
        msgspec.structs.replace(before, notified={**before.notified, receiver: _digest(notification)}),
    )


def _digest(notification: Notification) -> str:
    return hashlib.sha256(repr(notification.key).encode("utf-8", "backslashreplace")).hexdigest()[:16]
