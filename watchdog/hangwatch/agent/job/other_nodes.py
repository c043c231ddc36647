"""What a watch asks of the other nodes of its job: the protocol, and the answers where there is no other node.

May import the capturing and the incidents rooms. ``fleet`` implements the protocol; the watch knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hangwatch.agent.capturing.scope import CaptureScope
from hangwatch.agent.incidents.record import Sharing
from hangwatch.model.capture import Gap
from hangwatch.model.progress import RankProgress


@dataclass(frozen=True)
class Elsewhere:
    """The ranks of the other nodes. ``unprobed``: one of them has no probe; ``lost``: one is gone, with its node or without."""

    progress: Sequence[RankProgress] = ()
    unprobed: bool = False
    lost: bool = False


class OtherNodes(Protocol):
    """The fleet that a job's agents make up. ``channel``: its name, None where this node is by itself."""

    @property
    def channel(self) -> str | None:
        """Where the agents meet."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this agent diagnoses for all."""
        ...

    @property
    def follows(self) -> bool:
        """Whether another agent does, or will."""
        ...

    @property
    def distrust(self) -> str:
        """Why what the others say is no ground to act, in words; empty where it is, or where they say nothing."""
        ...

    @property
    def answers_may_come(self) -> bool:
        """Whether a rank without a capture may be on a node that is slow to answer."""
        ...

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What cannot be seen of the other nodes."""
        ...

    def lingers(self) -> bool:
        """Whether the others may still ask for ranks that are gone."""
        ...

    async def lead(self) -> Elsewhere:
        """Keep the job's incident known, and observe the ranks of the others."""
        ...

    async def follow(self) -> None:
        """Answer what is asked, and keep what is reported."""
        ...

    async def pause(self) -> None:
        """The agent ends and the job goes on."""
        ...

    async def leave(self) -> None:
        """Part from the others. If they go on, the incident is theirs."""
        ...


class Fleet(OtherNodes, Protocol):
    """Other nodes that can be asked: ``scope`` captures on all of them, ``sharing`` lets them know of an incident."""

    @property
    def scope(self) -> CaptureScope:
        """Captures all nodes where this one leads, else this node."""
        ...

    @property
    def sharing(self) -> Sharing:
        """The incident as the nodes share it."""
        ...


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
        """Nobody is to ask."""
        return False

    async def lead(self) -> Elsewhere:
        """There is nothing elsewhere."""
        return Elsewhere()

    async def follow(self) -> None:
        """Nobody leads."""

    async def pause(self) -> None:
        """Nobody is to know."""

    async def leave(self) -> None:
        """Nobody is left."""
