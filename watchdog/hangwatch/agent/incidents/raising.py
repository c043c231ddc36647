"""``--on-hang raise``: asks every rank of this node to raise the verdict, and sees which of them did.

A rank that raises closes its connections, and the ranks that wait at the other ends get an error of the backend's instead. So
the waiting ranks are asked first, which changes nothing for them yet. The culprits follow, and may raise at once. Only then are
waits ended. Agents of other nodes get the time to ask their ranks. May import the capturing and the host rooms, the model and
the sources. A rank has raised once its beat says so, or its process is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.model.incident import Incident
from hangwatch.model.text import number_ranks
from hangwatch.sources.flight.transport import ask_to_break, ask_to_raise
from hangwatch.sources.proc.samples import find_living

#: How long a rank may take to leave its wait: several times what a broken connection or an abort needs on a busy node.
GRACE_S = 15.0
#: For the probe's answer, which needs the rank's interpreter for a moment.
_ANSWER_S = 2.0
#: Other nodes hear of an incident within a period of the exchange (1 s); twice that, as nodes may be busy.
_OTHER_NODES_S = 2.0
#: Where no rank of this node can be asked: one whose peers on other nodes have raised ends by the error it meets.
_ENDING_S = 5.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Raised:
    """The ranks in which the verdict was raised, those that ended without saying so, and those left, with the reason."""

    ranks: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    left: Mapping[int, str] = field(default_factory=dict)

    def in_words(self) -> str:
        """Return in one sentence which ranks have raised, and why the others have not."""
        said = [f"raised in {number_ranks(self.ranks)}"] if self.ranks else []
        if self.ended:  # a forked rank leaves by os._exit, without a last beat
            said.append(f"{number_ranks(self.ended)} ended before reporting whether it raised")
        said = said or ["raised in no rank"]
        return "; ".join([*said, *(f"not in rank {rank}: {why}" for rank, why in sorted(self.left.items()))])


def describe(incident: Incident) -> str:
    """Return the message of the exception: the verdict and its cause, in one line."""
    verdict = incident.verdict
    cause = f" Cause: {verdict.cause.title} ({verdict.cause.id})." if verdict.cause is not None else ""
    return " ".join(f"{verdict.kind}: {verdict.summary}{cause} Incident {incident.id}.".split())


async def raise_in_ranks(local: LocalScope, incident: Incident, grace_s: float = GRACE_S) -> Raised:
    """Raise the verdict in every living rank of the job's own world on this node."""
    ranks = {identity.rank: identity for identity in local.ranks.living if identity.rank in local.ranks.own}
    beats = local.read_beats()
    text = describe(incident)
    controls = {rank: beat.control for rank, one in ranks.items() if (beat := beats.get(one.pid)) is not None}
    sockets = {rank: path for rank, path in controls.items() if path is not None}
    refused = dict.fromkeys(ranks.keys() - sockets.keys(), "the rank has no probe that can be asked")
    culprits = sockets.keys() & set(incident.verdict.culprit_ranks)
    refused |= await _ask(sockets, sockets.keys() - culprits, lambda path: ask_to_raise(path, text, _ANSWER_S))
    if len(incident.job.nodes) > 1:
        await asyncio.sleep(_OTHER_NODES_S)
    refused |= await _ask(sockets, culprits, lambda path: ask_to_raise(path, text, _ANSWER_S))
    # One that ends at once may not have answered: only what it says of itself counts.
    unbroken = await _ask(sockets, sockets.keys() - refused.keys(), lambda path: ask_to_break(path, _ANSWER_S))
    waiting, raised = set(ranks), set[int]()
    # Those who refuse may end with the others.
    deadline = time.monotonic() + (grace_s if len(refused) < len(ranks) else min(grace_s, _ENDING_S))
    while True:
        beats = local.read_beats() | local.last_beats()
        raised |= {r for r in waiting if (beat := beats.get(ranks[r].pid)) is not None and beat.raised}
        waiting -= {r for r in waiting if r in raised or not find_living([ranks[r]])}
        if not waiting or time.monotonic() >= deadline:
            break
        await asyncio.sleep(_POLL_S)
    return Raised(
        tuple(sorted(raised)),
        tuple(sorted(ranks.keys() - raised - waiting)),
        _reasons(waiting, refused | unbroken, grace_s),
    )


async def _ask(
    sockets: Mapping[int, str], ranks: Collection[int], ask: Callable[[str], Awaitable[str]]
) -> dict[int, str]:
    """Ask these ranks at once; returns why those will not that will not."""
    answers = await asyncio.gather(*(ask(sockets[rank]) for rank in ranks))
    return {rank: why for rank, why in zip(ranks, answers, strict=True) if why}


def _reasons(waiting: Collection[int], refused: Mapping[int, str], grace_s: float) -> dict[int, str]:
    late = f"the rank did not leave its wait within {grace_s:g} s"
    return {rank: refused.get(rank, late) for rank in waiting}
