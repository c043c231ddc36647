"""Makes digests of beats, and reads them: what a node says of the progress of its ranks. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hangwatch.analysis.progress import word_state
from hangwatch.model.beats import Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.model.digest import DIGEST_VERSION, Digest, DigestGroup, DigestProgress, DigestRank
from hangwatch.model.progress import LiveProgress, RankProgress, in_flight_s, read_progress
from hangwatch.model.slowness import Traffic


@dataclass(frozen=True)
class Writer:
    """The writer of digests: the node's name, the agent process, and the address that reaches the node."""

    node: str
    agent: str
    address: str = ""


def make_digest(
    writer: Writer,
    *,
    count: int,
    world_size: int | None,
    ranks: Mapping[int, RankIdentity],
    lost: Container[int],
    supervised: Container[int] = (),
    beats: Mapping[int, Beat],
    now_ns: int,
    replaced_age_s: float | None = None,
    leaving: bool = False,
    waited: Mapping[int, float] = MappingProxyType({}),
    links: tuple[Traffic, ...] = (),
) -> Digest:
    """Return the digest of this node's ``ranks``.

    ``lost``: ranks whose process is gone; ``supervised``: those of them that may be restarted. ``beats``: by pid. ``waited``: by
    rank, see ``DigestRank``. ``links``: the busiest.
    """
    groups: dict[str, int] = {}
    labels: list[DigestGroup] = []
    entries = []
    for rank in sorted(ranks):
        identity = ranks[rank]
        beat = beats.get(identity.pid)
        now = read_progress(rank, beat, now_ns, world_size) if beat is not None else RankProgress(rank)
        progress = []
        for one in now.groups:
            if one.key not in groups:
                groups[one.key] = len(labels)
                labels.append(DigestGroup(one.key, one.label))
            progress.append(
                DigestProgress(groups[one.key], one.enqueued, one.completed, round(one.in_flight_s or 0.0, 2))
            )
        alone = beat is not None and beat.alone
        entries.append(
            DigestRank(
                rank=rank,
                pid=identity.pid,
                age_s=round(now_ns / 1e9 - identity.start_time, 2),
                state="lost" if rank in lost else "alone" if alone else word_state(beat),
                groups=tuple(progress),
                local_rank=identity.local_rank,
                restart=identity.restart,
                beat_age_s=round(now.age_s, 2) if beat is not None else None,
                supervised=rank in supervised,
                world=identity.world,
                world_rank=identity.world_rank,
                waited=waited.get(rank),
            )
        )
    return Digest(
        version=DIGEST_VERSION,
        node=writer.node,
        agent=writer.agent,
        count=count,
        at_ns=now_ns,
        address=writer.address,
        world_size=world_size,
        ranks=tuple(entries),
        groups=tuple(labels),
        replaced_age_s=replaced_age_s,
        leaving=leaving,
        links=links,
    )


def digest_progress(digest: Digest, rank: DigestRank) -> RankProgress:
    """Return the progress of another node's rank when its digest was written.

    Whether it has moved since is not known.
    """
    groups = ((digest.groups[one.group], one) for one in rank.groups)
    return RankProgress(
        rank.rank,
        tuple(
            LiveProgress(g.key, g.label, (), o.enqueued, o.completed, in_flight_s(o.enqueued, o.completed, o.unmoved_s))
            for g, o in groups
        ),
        rank.beat_age_s or 0.0,
    )
