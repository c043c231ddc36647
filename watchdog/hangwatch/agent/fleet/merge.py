"""Merges many nodes' captures: times on one clock, progress of one moment, what is known of the other nodes. Pure.

May import the model, the analysis and ``fleet.peers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from hangwatch.agent.fleet.peers import Member
from hangwatch.analysis.operations.histories import condense
from hangwatch.model.capture import Capture, Gap, RankCapture, SilentNode
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, OperationColumns
from hangwatch.model.digest import Digest, DigestRank
from hangwatch.model.processes import ProcessSample
from hangwatch.model.text import format_ranks
from hangwatch.model.transforms.clocks import shift

_replace = msgspec.structs.replace


def shorten(capture: Capture, operations: int | None) -> Capture:
    """Return the capture with the last ``operations`` of each rank (None: all), as columns.

    To build all operations of a large job would take too long.
    """
    ranks = tuple(
        _replace(r, flight=_shorten_flight(r.flight, operations)) if r.flight is not None else r for r in capture.ranks
    )
    return _replace(capture, ranks=ranks)


def _shorten_flight(flight: FlightRecord, most: int | None) -> FlightRecord:
    operations = flight.operations
    if isinstance(operations, OperationColumns):
        return flight
    # An operation that has not completed is never left out, however old.
    start = len(operations) - most if most is not None else 0
    kept = tuple(o for at, o in enumerate(operations) if at >= start or not o.completed)
    return _replace(flight, operations=condense(kept), whole=flight.whole and len(kept) == len(operations))


def merge(
    own: Capture,
    answers: Mapping[str, Capture],
    elsewhere: Mapping[int, tuple[Member, DigestRank]],
    now_s: float,
    *,
    unasked: Iterable[str] = (),
    called: Mapping[str, str] = MappingProxyType({}),
) -> Capture:
    """Return one capture of the whole job, on this node's clock.

    ``own``: this node's; ``answers``: the others', by node. ``elsewhere``: the newest digests of the ranks there,
    read after all captures: what has completed since is not in flight, and a rank whose node sent no capture is known
    only from its digest. ``unasked``: nodes that were not asked because they are silent. ``called``: names for nodes,
    by their keys.
    """
    ranks = {rank.rank: rank for rank in own.ranks}
    gaps = list(own.gaps)
    nodes = {facts.node: facts for facts in own.nodes}
    names = list(own.job.nodes)
    members = {member.name: member for member, _ in elsewhere.values()}
    for name, answer in answers.items():
        capture = shift(answer, members[name].offset_ns if name in members else 0)
        gaps += capture.gaps
        nodes |= {facts.node: facts for facts in capture.nodes}
        for rank in capture.ranks:
            # Processes beside the job are in no digest.
            if rank.identity.worldless or (rank.rank in elsewhere and elsewhere[rank.rank][0].name == name):
                ranks[rank.rank] = rank
    groups = _groups(ranks.values())
    for number, (member, digested) in sorted(elsewhere.items()):
        names.append(_name(member, called))
        seen = ranks.get(number)
        if seen is not None and seen.identity.pid != digested.pid:
            seen = None
        known = _progress(member.digest, digested, groups)
        if seen is not None:
            ranks[number] = _replace(seen, progress=_overlaid(seen.progress, known))
        elif not member.is_silent(now_s) or member.is_lost(now_s):
            ranks[number] = _by_digest(member, digested, known, own.at_ns, called)
    silent = _silent(elsewhere.values(), now_s, called)
    gaps += _absent(elsewhere.values(), answers, set(unasked), now_s, called)
    unknown = set(range(own.job.world_size or 0)) - set(ranks) - set(elsewhere)
    if unknown:
        hint = "run hangwatch with the same --exchange on every node of the job"
        gaps.append(Gap("node", f"no agent reports rank{'s' * (len(unknown) > 1)} {format_ranks(unknown)}", hint=hint))
    return Capture(
        job=_replace(own.job, nodes=tuple(dict.fromkeys(names))),
        at_ns=own.at_ns,
        ranks=tuple(ranks[number] for number in sorted(ranks)),
        gaps=tuple(dict.fromkeys(gaps)),
        nodes=tuple(nodes.values()),
        training=own.training,
        silent=silent,
    )


def _groups(ranks: Iterable[RankCapture]) -> dict[str, Group]:
    """Return all groups that any rank knows with their members, by key."""
    found: dict[str, Group] = {}
    for rank in ranks:
        for progress in (*(rank.progress or ()), *(rank.flight.progress if rank.flight is not None else ())):
            found.setdefault(progress.group.key, progress.group)
    return found


def _progress(digest: Digest, rank: DigestRank, groups: Mapping[str, Group]) -> dict[str, GroupProgress]:
    found = {}
    for one in rank.groups:
        key = digest.groups[one.group].key
        if key in groups:
            found[key] = GroupProgress(groups[key], max(one.enqueued, 0), -1, max(one.completed, 0))
    return found


def _overlaid(
    before: tuple[GroupProgress, ...] | None, after: Mapping[str, GroupProgress]
) -> tuple[GroupProgress, ...] | None:
    """Return the progress of a capture, updated by the newest digest."""
    if before is None:
        return tuple(after.values()) or None
    found = []
    for old in before:
        new = after.get(old.group.key)
        if new is not None and (new.enqueued > old.enqueued or new.completed > old.completed):
            enqueued, completed = max(old.enqueued, new.enqueued), max(old.completed, new.completed)
            found.append(_replace(old, enqueued=enqueued, completed=completed))
        else:
            found.append(old)
    return tuple(found)


def _name(member: Member, called: Mapping[str, str]) -> str:
    return called.get(member.name, member.digest.node)


def _by_digest(
    member: Member, rank: DigestRank, progress: Mapping[str, GroupProgress], at_ns: int, called: Mapping[str, str]
) -> RankCapture:
    """Return a rank that is known only from its digest."""
    gone = (ProcessSample(at_ns, rank.pid, "gone", supervised=rank.supervised),) if rank.state == "lost" else ()
    identity = _replace(member.digest.identity(rank, at_ns), node=_name(member, called))
    return RankCapture(identity, processes=gone, progress=tuple(progress.values()) or None, beat_age_s=rank.beat_age_s)


def _silent(
    elsewhere: Iterable[tuple[Member, DigestRank]], now_s: float, called: Mapping[str, str]
) -> tuple[SilentNode, ...]:
    """Return the lost nodes: their agents are silent, and their hosts do not answer."""
    found: dict[str, tuple[Member, list[int]]] = {}
    for member, rank in elsewhere:
        if member.is_lost(now_s):
            found.setdefault(member.name, (member, []))[1].append(rank.rank)
    return tuple(
        SilentNode(
            node=_name(member, called),
            ranks=tuple(sorted(ranks)),
            silent_s=round(member.silent_s(now_s), 1),
            address=member.digest.address,
            answered_before=member.known_to_answer,
        )
        for member, ranks in found.values()
    )


def _absent(
    elsewhere: Iterable[tuple[Member, DigestRank]],
    answers: Mapping[str, Capture],
    unasked: set[str],
    now_s: float,
    called: Mapping[str, str],
) -> Sequence[Gap]:
    """Return gaps that say why nodes have sent no capture."""
    ranks: dict[str, list[int]] = {}
    members: dict[str, Member] = {}
    for member, rank in elsewhere:
        if member.name not in answers:
            ranks.setdefault(member.name, []).append(rank.rank)
            members[member.name] = member
    gaps = []
    for name, member in members.items():
        where = _name(member, called)
        if member.digest.leaving:
            reason = f"the agent of {where} has ended, because its part of the job has ended"
        elif member.is_silent(now_s):
            host = {
                True: "but the host answers",
                False: "and the host does not answer",
                None: "and the host was not checked",
            }
            reason = (
                f"nothing comes from the agent of {where} for {member.silent_s(now_s):.0f} s, {host[member.answers]}"
            )
        elif name in unasked:
            continue
        else:
            reason = f"the agent of {where} sent no capture in time; only a summary of its ranks is known"
        gaps.append(Gap("node", reason, hint="see hangwatch's log on that node"))
    return gaps
