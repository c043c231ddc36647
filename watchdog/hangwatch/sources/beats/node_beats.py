"""The beats of all probed processes of the node: of every user, and of other mount and PID namespaces.

May import hangwatch.model, hangwatch.sources' own parts and the standard library. A process says in its environment
where its beats are (``HANGWATCH_RUN_DIR``). If it has a mount namespace or a root of its own, the folder is reached
through ``/proc/PID/root``. Its pid in there is the last one of ``NSpid`` in ``/proc/PID/status`` (Linux 4.1 on).

The agent may be root, and the folder somebody else's: it follows, opens or connects to nothing that does not belong
to the user of the process itself.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.left import Left
from hangwatch.sources.beats.files import BeatReader, LastBeats
from hangwatch.sources.beats.left import read_left
from hangwatch.sources.beats.worlds import Worlds
from hangwatch.sources.discovery.process_table import ProbedProcess
from hangwatch.sources.proc.files import is_start, view_of

#: How many last beats of dead processes are kept, the latest ones: their folder may be gone too.
_LAST_KEPT = 512


class NodeBeats:
    """Reads the beats of many run directories as if they were one.

    ``own``: our directory, which is always read. ``worlds``: tells who is in groups that processes of several worlds
    share.
    """

    def __init__(self, own: Path | None = None) -> None:
        self._own = BeatReader(own) if own is not None else None
        self._own_folder = str(own) if own is not None else None
        self._places: dict[tuple[str, str], _Place] = {}
        self.worlds = Worlds()
        self._last: LastBeats = {}

    def follow(self, members: Iterable[ProbedProcess]) -> None:
        """Read the beats of ``members`` from now on, and no others."""
        by_place: dict[tuple[str, str], list[ProbedProcess]] = {}
        here = view_of("self")
        for member in members:
            if member.view != here or member.folder != self._own_folder:
                by_place.setdefault((member.view, member.folder), []).append(member)
        self._places = {key: self._places.get(key) or _Place() for key in by_place}
        for key, found in by_place.items():
            self._places[key].update(found, foreign=key[0] != here)

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """Return all beats by pid, and gaps for what could not be read."""
        beats: dict[int, Beat] = {}
        gaps: list[Gap] = []
        reads = [place.read() for place in self._places.values()]
        for found, missed in (*reads, *([self._own.read()] if self._own is not None else [])):
            beats |= found
            gaps += missed
        for last in (*(place.last for place in self._places.values()), self._own.last if self._own is not None else {}):
            self._last |= last
        for key in list(self._last)[:-_LAST_KEPT]:
            del self._last[key]
        return self.worlds.resolve(beats), tuple(gaps)

    def last_of(self, ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        """Return the last beats of those ``ranks`` that were gone at the last ``read``, by pid."""
        starts = {identity.pid: identity.start_time for identity in ranks}
        return {
            pid: beat for (pid, ticks), beat in self._last.items() if pid in starts and is_start(ticks, starts[pid])
        }

    def read_left(self, ranks: Iterable[RankIdentity]) -> dict[int, Left]:
        """Return what ``ranks`` left in our own directory when their programs ended, by pid."""
        return read_left(Path(self._own_folder), ranks) if self._own_folder is not None else {}


class _Place:
    """One run directory as processes of the same view of the file system see it."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._reader: BeatReader | None = None
        self._members: Mapping[int, ProbedProcess] = {}

    def update(self, members: list[ProbedProcess], *, foreign: bool) -> None:
        """Replace the living processes of this place by ``members``; the folder is reached through any of them."""
        self._members = {member.inner_pid: member for member in members}
        ways = [Path(f"/proc/{member.pid}/root{member.folder}" if foreign else member.folder) for member in members]
        if self._reader is None or self._folder not in ways:
            self._folder, self._reader = ways[0], BeatReader(ways[0])

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """Return beats by the pid that we see, with socket paths that we can reach, and gaps."""
        if self._reader is None or self._folder is None:
            return {}, ()
        found, gaps = self._reader.read({inner: (one.pid, one.uid) for inner, one in self._members.items()})
        beats = {}
        for pid, beat in found.items():
            uid = self._members[beat.pid].uid
            beats[pid] = msgspec.structs.replace(
                beat, pid=pid, server=self._socket(beat.server, uid), control=self._socket(beat.control, uid)
            )
        return beats, gaps

    @property
    def last(self) -> LastBeats:
        """The last beats of members that are gone; empty if the place was never read."""
        return self._reader.last if self._reader is not None else {}

    def _socket(self, written: str | None, uid: int) -> str | None:
        """Return the path at which we reach the probe's socket; None unless it belongs to the process's user."""
        if written is None or self._folder is None:
            return None
        path = self._folder / "ranks" / written.rpartition("/")[2]
        try:
            found = path.lstat()
        except (OSError, ValueError):
            return None
        return str(path) if stat.S_ISSOCK(found.st_mode) and found.st_uid == uid else None
