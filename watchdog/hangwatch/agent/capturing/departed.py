"""The Python processes that were started beside a job's ranks and have failed: whoever waits for one of them waits in vain.

May import the model and the sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from hangwatch.model.beats import Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.discovery.roles import identify_beside
from hangwatch.sources.proc.files import Stat, is_zombie, read_stat

_MOST_DEPARTED = 4
_MOST_ANCESTORS = 64
#: A service that is older than the ranks by more than this was not started with them.
_STARTED_BEFORE_S = 600.0


class LastBeats(Protocol):
    """Where the last beats of processes that are gone are read."""

    def last_of(self, ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        """What those of the processes that are gone have written last, by pid."""
        ...


def find_departed(
    ended: Iterable[KnownProcess], ranks: Sequence[RankIdentity], reader: LastBeats | None
) -> tuple[RankIdentity, ...]:
    """Those of the processes that have ended which somebody above the ranks started and which have failed; the last few of them.

    What a rank has started is its own child. How one has ended that nobody has asked for is not known, unless its probe tells.
    """
    stats = [stat for rank in ranks if (stat := read_stat(rank.pid)) is not None]
    above = {pid for stat in stats for pid in _ancestors(stat)}
    own = {rank.pid for rank in ranks}
    since_s = min((rank.start_time for rank in ranks), default=0.0)
    beside = [p for p in ended if p.parent in above and p.pid not in own and p.launcher is None]
    beside = [p for p in beside if p.start_time >= since_s - _STARTED_BEFORE_S and not _was_restarted(p, stats)]
    identities = [identify_beside(p.pid, p.start_time, p.arguments) for p in beside]
    last = reader.last_of(identities) if reader is not None else {}
    return tuple(one for one in identities if _has_failed(one, last.get(one.pid)))[-_MOST_DEPARTED:]


def _was_restarted(process: KnownProcess, ranks: Iterable[Stat]) -> bool:
    """Whether it was a rank of an earlier life of the job: who started it has started ranks since."""
    later = (rank for rank in ranks if rank.parent == process.parent and rank.start_ticks >= process.seen_ticks)
    return process.claim is not None and any(later)


def _has_failed(identity: RankIdentity, beat: Beat | None) -> bool:
    """By its status, as long as nobody has asked for that, else by its probe: a process that was killed has not said its end."""
    stat = read_stat(identity.pid)
    if stat is not None and is_zombie(stat):
        return stat.wait_status != 0
    return beat is not None and (bool(beat.failure) or not beat.ended)


def _ancestors(stat: Stat) -> set[int]:
    found: set[int] = set()
    above: Stat | None = stat
    while above is not None and above.parent > 1 and len(found) < _MOST_ANCESTORS:
        found.add(above.parent)
        above = read_stat(above.parent)
    return found
