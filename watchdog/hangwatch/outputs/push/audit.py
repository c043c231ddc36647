"""What was done about an incident: who was told, and which actions were taken. May import msgspec and the outputs.

Kept in the bundle, ``handling.json``, so that an agent that is started again tells nobody twice, takes no action twice, and
whoever reads the bundle in the morning sees what happened at night. A bundle that could not be written remembers nothing.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Literal

import msgspec

from hangwatch.outputs.bundle.files import encode, write_files
from hangwatch.outputs.push.notices import Notice

log = logging.getLogger("hangwatch")

FILE = "handling.json"
SCHEMA = "hangwatch.handling/1"


class ActionTaken(msgspec.Struct, frozen=True):
    """One action: when it was begun (seconds since the epoch), which, whether it was only rehearsed, and how it ended."""

    at_s: float
    action: Literal["stop", "exec"]
    dry_run: bool
    outcome: str


class Handling(msgspec.Struct, frozen=True):
    """``told`` maps a receiver (as it may be shown) to a digest of the last thing it has taken in."""

    schema: str = SCHEMA
    told: dict[str, str] = {}
    actions: tuple[ActionTaken, ...] = ()


def read_handling(bundle: Path) -> Handling:
    """What was done so far; nothing where there is no such file or none that can be read."""
    try:
        return msgspec.json.decode((bundle / FILE).read_bytes(), type=Handling)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Handling()


def _write(bundle: Path, handling: Handling) -> None:
    try:
        write_files(bundle, [(FILE, [encode(handling)])])
    except OSError as error:
        log.warning("cannot write %s to %s: %s", FILE, bundle, error.strerror or error)


def note_action(bundle: Path, taken: ActionTaken) -> None:
    """Remember an action; one that was begun at the same moment is replaced by how it ended."""
    before = read_handling(bundle)
    others = tuple(one for one in before.actions if one.at_s != taken.at_s)
    _write(bundle, msgspec.structs.replace(before, actions=(*others, taken)))


def was_told(notice: Notice, receiver: str) -> bool:
    """Whether the receiver has taken in this very notice, from whichever agent."""
    return notice.bundle is not None and read_handling(Path(notice.bundle)).told.get(receiver) == _digest(notice)


def note_told(notice: Notice, receiver: str) -> None:
    """Remember that the receiver has taken the notice in."""
    if notice.bundle is None or not Path(notice.bundle).is_dir():
        return
    before = read_handling(Path(notice.bundle))
    _write(Path(notice.bundle), msgspec.structs.replace(before, told={**before.told, receiver: _digest(notice)}))


def _digest(notice: Notice) -> str:
    return hashlib.sha256(repr(notice.key).encode("utf-8", "backslashreplace")).hexdigest()[:16]
