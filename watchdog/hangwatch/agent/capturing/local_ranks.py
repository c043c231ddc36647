"""The ranks of one job on this node: which exist, since when others are gone, and when the job was restarted.

May import the model, the sources and ``capturing.redact``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.capturing.redact import secret_values
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.claims import JobOfWorld
from hangwatch.model.numbers import is_guest
from hangwatch.sources.discovery.found_jobs import FoundJob
from hangwatch.sources.proc.files import is_one_moment
from hangwatch.sources.redaction import hide_values


def is_same_process(one: RankIdentity, other: RankIdentity) -> bool:
    """True if both are one process; an equal pid alone may have been reused."""
    return one.pid == other.pid and is_one_moment(one.start_time, other.start_time)


@dataclass
class LocalRanks:
    """The ranks of one job on this node.

    ``known`` and ``lost_since_s`` are by rank; times ending in ``_s`` are of the monotonic clock. ``master``: where
    the job's ranks meet. ``spans_nodes``: some ranks are known to be on other nodes. ``replaced_s``: when the
    processes before the present ones ended; None if there were none. ``link``: where the agents of this job meet, if
    it shares a group with processes of another world elsewhere.
    """

    job: Job
    master: str = ""
    spans_nodes: bool = False
    known: dict[int, RankIdentity] = field(default_factory=dict)
    lost_since_s: dict[int, float] = field(default_factory=dict)
    replaced_s: float | None = None
    link: JobOfWorld | None = None

    def update(self, found: FoundJob | None, now_s: float) -> bool:
        """Take in which ranks exist now; True if they are a new incarnation of the job.

        A restarted rank replaces the one before; a vanished one is kept as lost.
        """
        if found is not None:
            self.job, self.master, self.spans_nodes = found.job, found.master, found.spans_nodes
            self.link = found.away if found.away is not None else self.link
        here = {r.rank: r for r in found.ranks} if found is not None else {}
        known = self.known
        # A process of another world may restart alone: a restarted engine is no new run of the trainers.
        own = [(i, known[r]) for r, i in here.items() if r in known and not is_guest(r)]
        began = [i.start_time for i, before in own if not is_same_process(before, i)]
        if began:
            # The previous one had ended when this one began, however late we notice.
            self.replaced_s = min((*self.lost_since_s.values(), now_s - max(0.0, time.time_ns() / 1e9 - min(began))))
            self.known.clear()
            self.lost_since_s.clear()
        self.known.update(here)
        for rank in self.known:
            if rank in here:
                self.lost_since_s.pop(rank, None)
            else:
                self.lost_since_s.setdefault(rank, now_s)
        command = hide_values(self.job.command, secret_values(self.known.values()))
        self.job = msgspec.structs.replace(self.job, command=command)
        return bool(began)

    def add(self, identities: Iterable[RankIdentity]) -> None:
        """Add ranks that an earlier agent has seen."""
        for identity in identities:
            self.known.setdefault(identity.rank, identity)

    @property
    def in_order(self) -> list[RankIdentity]:
        """All ranks that were seen, ordered by number."""
        return [self.known[rank] for rank in sorted(self.known)]

    @property
    def own(self) -> dict[int, RankIdentity]:
        """The ranks of the job's own world that were seen."""
        return {rank: identity for rank, identity in self.known.items() if not is_guest(rank)}

    @property
    def living(self) -> list[RankIdentity]:
        """The ranks whose processes still exist."""
        return [identity for rank, identity in self.known.items() if rank not in self.lost_since_s]

    @property
    def gone(self) -> bool:
        """True if every rank that was ever seen is gone."""
        return bool(self.known) and len(self.lost_since_s) == len(self.known)

    def is_lost(self, now_s: float, grace_s: float) -> bool:
        """True if a rank has been gone for longer than ``grace_s``. Processes of other worlds may come and go."""
        return any(now_s - since_s >= grace_s for rank, since_s in self.lost_since_s.items() if not is_guest(rank))

    def ages_s(self) -> dict[int, float]:
        """Return how old the processes of the living ranks are, in seconds by rank."""
        now = time.time()
        return {identity.rank: now - identity.start_time for identity in self.living}
