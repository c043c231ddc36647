"""Python processes started beside a job's ranks that have failed: whoever waits for one of them waits in vain.

May import the model, the sources and ``records``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangwatch.model.beats import Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.discovery.roles import identify_beside
from hangwatch.sources.proc.files import Stat, is_zombie, read_stat

_MOST_DEPARTED = 4
_MOST_ANCESTORS = 64
#: A service older than the ranks by more than this was not started with them.
_STARTED_BEFORE_S = 600.0


def find_departed(
    ended: Iterable[KnownProcess], ranks: Sequence[RankIdentity], reader: NodeBeats | None
) -> tuple[RankIdentity, ...]:
    """Return the last few ended processes that failed and that a process above the ranks had started.

    A process that a rank started is that rank's child, and not returned. How a process ended is unknown once it is
    reaped, unless its probe tells.
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
    """True if the process was a rank of an earlier life of the job: its parent has started ranks since."""
    later = (rank for rank in ranks if rank.parent == process.parent and rank.start_ticks >= process.seen_ticks)
    return process.claim is not None and any(later)


def _has_failed(identity: RankIdentity, beat: Beat | None) -> bool:
    """True if the process failed: by its exit status until it is reaped, then by its probe's last beat.

    A process that was killed never wrote that it ended.
    """
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
