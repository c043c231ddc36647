"""The other nodes that watch the job, by their digests: which are silent, which are of an earlier incarnation.

Everything is judged by when *this* agent saw a digest change, on its own monotonic clock; other clocks only tell by
how much they differ. No I/O; may import the model, ``job.suspicion``, what the exchange says of sealed values, and its own room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hangwatch.agent.fleet.digests import digest_progress
from hangwatch.exchange.sealed import REMEDY, is_sealed_otherwise
from hangwatch.model.capture import Gap
from hangwatch.model.digest import Digest, DigestRank, parse_digest
from hangwatch.model.progress import RankProgress
from hangwatch.model.transforms.published import PublishedError

#: A digest comes each second; if it has not changed for this long, its agent is gone or unreachable.
SILENT_S = 8.0
UNKNOWN_SILENT_S = 60.0
#: A member that left is remembered this long: others may wait for its ranks.
LEFT_S = 120.0
#: A silent member is remembered this long.
FORGET_S = 3600.0
#: Tolerance when comparing ages of processes with those of their replacements, in seconds.
_SLACK_S = 2.0
#: Clocks that differ by less are taken to be the same: a digest is about a second old when it is read.
_SAME_CLOCK_NS = 2_000_000_000


@dataclass
class Member:
    """Another node.

    ``answers``: whether its host answers now; None if not known. ``known_to_answer``: it did once.
    """

    name: str
    data: bytes
    digest: Digest
    changed_s: float
    answers: bool | None = None
    known_to_answer: bool = False
    #: This node's clock minus that node's, plus the time until the digest was read; the least is the most accurate.
    _offsets_ns: deque[int] = field(default_factory=lambda: deque(maxlen=30))

    def silent_s(self, now_s: float) -> float:
        """Return for how many seconds nothing new has come from it."""
        return now_s - self.changed_s

    def is_silent(self, now_s: float) -> bool:
        """True if its agent has stopped writing without saying that it leaves."""
        return not self.digest.leaving and self.silent_s(now_s) >= SILENT_S

    def is_lost(self, now_s: float) -> bool:
        """True if its host is silent, too.

        A host that never answered may be behind a firewall: then it takes longer.
        """
        enough_s = SILENT_S if self.known_to_answer else UNKNOWN_SILENT_S
        return self.is_silent(now_s) and self.answers is False and self.silent_s(now_s) >= enough_s

    @property
    def offset_ns(self) -> int:
        """Nanoseconds to add to this member's times to get this node's clock; 0 if the clocks agree."""
        least = min(self._offsets_ns, default=0)
        return least if abs(least) > _SAME_CLOCK_NS else 0

    def take(self, data: bytes, digest: Digest, now_s: float, now_ns: int) -> None:
        """Take in a new digest."""
        self.data, self.digest, self.changed_s = data, digest, now_s
        self.answers = None
        self._offsets_ns.append(now_ns - digest.at_ns)


#: The ranks of the other nodes, each with its node.
RanksElsewhere = dict[int, tuple[Member, DigestRank]]


@dataclass
class Members:
    """All other nodes of one job. ``own``: the name of this one."""

    own: str
    members: dict[str, Member] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    _mine: Member | None = None

    def update(self, found: Mapping[str, bytes], now_s: float, now_ns: int) -> None:
        """Take in the digests that were just read. Unusable ones are set aside, by name."""
        gaps: list[Gap] = []
        for name, data in found.items():
            known = self._mine if name == self.own else self.members.get(name)
            if known is not None and known.data == data:
                continue
            try:
                digest = parse_digest(data)
            except PublishedError as error:
                hint = "use the same hangwatch on all nodes" if str(error).startswith("is in") else ""
                if is_sealed_otherwise(data):
                    error, hint = PublishedError("has another secret than this node's, or none"), REMEDY
                gaps.append(
                    Gap("peer discovery", f"the data of node {name} {error}; its ranks are not visible", hint=hint)
                )
                continue
            if known is None:
                known = Member(name, data, digest, now_s)
            known.take(data, digest, now_s, now_ns)
            if name == self.own:
                self._mine = known
            else:
                self.members[name] = known
        self.gaps = tuple(gaps)
        for name, member in list(self.members.items()):
            if member.silent_s(now_s) > (LEFT_S if member.digest.leaving else FORGET_S):
                del self.members[name]

    def current(self, now_s: float) -> list[Member]:
        """Return the members whose processes are of the newest incarnation of the job."""
        everyone = [*self.members.values(), *([self._mine] if self._mine is not None else [])]
        replaced = [
            (m.name, m.digest.replaced_age_s + m.silent_s(now_s))
            for m in everyone
            if m.digest.replaced_age_s is not None
        ]

        def is_outdated(member: Member) -> bool:
            # Its processes are older than the end of other nodes' previous ones: they belong to the previous incarnation.
            ages = [rank.age_s + member.silent_s(now_s) for rank in member.digest.ranks]
            return bool(ages) and any(name != member.name and min(ages) > ago_s + _SLACK_S for name, ago_s in replaced)

        return [m for m in self.members.values() if not is_outdated(m)]

    def ranks(self, now_s: float, own: Mapping[int, float]) -> RanksElsewhere:
        """Return the ranks of the other nodes.

        ``own``: the ages of this node's ranks in seconds. A rank that two nodes claim has moved: it is where it
        lives, where an agent speaks for it, and where it is youngest. If it is as old here, it is this node's, and
        another agent sees it too.
        """
        found: dict[int, tuple[tuple[bool, bool, float], Member, DigestRank]] = {}
        for member in self.current(now_s):
            for rank in member.digest.ranks:
                age_s = rank.age_s + member.silent_s(now_s)
                order = (rank.state != "lost", not member.is_silent(now_s), -age_s)
                if rank.rank in own and order < (True, True, _SLACK_S - own[rank.rank]):
                    continue
                rival = found.get(rank.rank)
                if rival is None or order > rival[0]:
                    found[rank.rank] = (order, member, rank)
        return {number: (member, rank) for number, (_, member, rank) in found.items()}

    def progress(self, ranks: Mapping[int, tuple[Member, DigestRank]], now_s: float) -> list[RankProgress]:
        """Return the progress of the other nodes' ranks.

        Nothing new is known of ranks that are gone or silent.
        """
        return [
            digest_progress(member.digest, rank)
            for member, rank in ranks.values()
            if rank.groups and rank.state not in {"lost", "alone"} and not member.is_silent(now_s)
        ]
