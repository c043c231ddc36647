"""What a watch asks of the other nodes of its job: the protocol, and the answers where there is no other node.

May import the capturing and the incidents rooms. ``fleet`` implements the protocol; the watch knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hangwatch.agent.capturing.scope import CaptureScope
from hangwatch.agent.incidents.record import Sharing
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.progress import RankProgress
from hangwatch.model.slowness import Profile, Traffic
from hangwatch.slow.timeline import Streams


@dataclass(frozen=True)
class Elsewhere:
    """The ranks of the other nodes. ``unprobed``: one of them has no probe; ``lost``: one is gone, with its node or without."""

    progress: Sequence[RankProgress] = ()
    unprobed: bool = False
    lost: bool = False


class OtherNodes(Protocol):
    """The fleet that a job's agents make up."""

    @property
    def channel(self) -> str | None:
        """The name under which the job's agents meet; None if this node is on its own."""

    @property
    def leads(self) -> bool:
        """True if this agent diagnoses for all nodes."""

    @property
    def follows(self) -> bool:
        """True if another agent diagnoses, or will."""

    @property
    def distrust(self) -> str:
        """Why hangwatch must not act on what the others say; empty if it may, or if they say nothing."""

    @property
    def answers_may_come(self) -> bool:
        """True if a rank without a capture may be on a node that is slow to answer."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What this node cannot see of the other nodes."""

    def lingers(self) -> bool:
        """Return whether the others may still ask about ranks that are gone."""

    async def lead(self) -> Elsewhere:
        """Keep the job's incident known to all, and return the ranks of the other nodes."""

    async def follow(self) -> None:
        """Answer the leader's questions, and keep what it reports."""

    async def pause(self) -> None:
        """Stop without ending the incidents: the agent ends, and the job goes on."""

    async def leave(self) -> None:
        """Leave the other agents. If they go on, the incident is theirs."""


class Comparison(Protocol):
    """With whom this node's ranks are compared, to find the one that makes the others late.

    ``one_clock``: the times of all are by one clock. ``looks``: this node compares; else another one does.
    """

    @property
    def one_clock(self) -> bool: ...

    @property
    def looks(self) -> bool: ...

    @property
    def is_whole(self) -> bool:
        """True if all ranks of the job are known."""

    async def gather(self, own: Streams) -> Streams | None:
        """Return the calls to compare, empty if no rank can be late; None if they are not available now."""

    async def profile(self, ranks: Sequence[int], seconds: float) -> tuple[Profile, ...]:
        """Watch ``ranks`` and return where they spend their time, without those that cannot be watched."""

    @property
    def links(self) -> Mapping[str, Sequence[Traffic]]:
        """The busiest links of each node; empty if there is one node."""

    async def capture(self, *, devices: bool) -> Capture:
        """Capture all ranks, as far as an incident of a job that goes on needs it; with ``devices`` also their GPUs."""


class Fleet(OtherNodes, Protocol):
    """Other nodes that can be asked.

    ``scope`` captures on all of them, ``sharing`` lets them know of an incident, ``comparison`` compares their ranks.
    """

    @property
    def scope(self) -> CaptureScope:
        """The scope that captures all nodes if this one leads, else this node."""

    @property
    def sharing(self) -> Sharing:
        """How the nodes share the job's incident."""

    @property
    def comparison(self) -> Comparison:
        """Compares the ranks of all nodes."""


@dataclass(frozen=True)
class NoOtherNodes:
    """This node is by itself; ``gaps`` says why, where there are others. ``follows``: for now, as it is about to join them."""

    gaps: tuple[Gap, ...] = ()
    channel: None = None
    leads: bool = False
    follows: bool = False
    distrust: str = ""
    answers_may_come: bool = False

    def lingers(self) -> bool:
        """Return False: nobody asks."""
        return False

    async def lead(self) -> Elsewhere:
        """Return nothing: there are no other nodes."""
        return Elsewhere()

    async def follow(self) -> None:
        """Do nothing: nobody leads."""

    async def pause(self) -> None:
        """Do nothing: there is nobody to tell."""

    async def leave(self) -> None:
        """Do nothing: there is nobody to leave."""
