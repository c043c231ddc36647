"""What the lease holder asks all nodes at once, and how it collects the answers.

May import the model, the exchange and its own room; knows captures only to unpack them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from hangwatch.agent.fleet.link import Link
from hangwatch.agent.fleet.wire import UNHURRIED, Answer, Question, QuestionKind, decode
from hangwatch.exchange.protocol import ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Capture
from hangwatch.model.transforms.packing import Commons, unpack

log = logging.getLogger("hangwatch")
_T = TypeVar("_T")

#: How long we wait for other nodes' captures after our own is done.
ANSWER_S = 4.0
#: How long we wait for digests newer than all captures.
_CONFIRM_S = 2.0
_POLL_S = 0.1


@dataclass
class Inquiry:
    """Asks the other nodes. ``post``: posts the notice, which contains the question."""

    link: Link
    post: Callable[[], Awaitable[None]]
    question: Question | None = None

    async def ask(
        self,
        kind: QuestionKind,
        *,
        ranks: tuple[int, ...] | None = None,
        operations: int | None = None,
        only: tuple[str, ...] | None = None,
        connections: tuple[tuple[str, str], ...] = (),
        seconds: float = 0.0,
    ) -> Question:
        """Ask all nodes and return the question, for ``collect``."""
        question = self.question = Question(uuid.uuid4().hex[:12], kind, ranks, operations, only, connections, seconds)
        if kind not in UNHURRIED:
            self.link.hurry()
        await self.post()
        return question

    async def collect(self, question: Question, among: set[str] | None = None) -> dict[str, Capture]:
        """Return the captures that come in time, of nodes that can be expected to answer."""
        commons = Commons()

        def read(answer: Answer) -> Capture:
            if answer.packed is None:
                raise ValueError("is missing")
            return unpack(answer.packed, commons)

        return await self.collect_answers(question, read, among)

    async def collect_answers(
        self, question: Question, read: Callable[[Answer], _T], among: set[str] | None = None
    ) -> dict[str, _T]:
        """Return the answers that come in time, of nodes that can be expected to answer."""
        clock = self.link.clock
        found: dict[str, _T] = {}
        spoilt: set[str] = set()
        end_s = clock() + question.seconds + ANSWER_S
        while True:
            now_s = clock()
            expected = {
                m.name
                for m in self.link.members.current(now_s)
                if not m.digest.leaving and m.silent_s(now_s) < ANSWER_S and (among is None or m.name in among)
            }
            left = {f"{question.id}/{name}": name for name in expected - set(found) - spoilt}
            if not left or now_s >= end_s:
                self.link.rest()  # frequent reading of all digests is expensive in a large fleet, and a diagnosis follows
                return found
            try:
                got = await wait_within(self.link.exchange.get(self.link.channel, left), ANSWER_S)
            except (ExchangeError, asyncio.TimeoutError):
                got = {}
            for key, data in got.items():
                try:
                    found[left[key]] = read(decode(data, Answer))
                except ValueError as error:
                    log.warning("the answer of node %s %s", left[key], error)
                    spoilt.add(left[key])
            if not got:
                await asyncio.sleep(_POLL_S)

    async def confirm(self, names: set[str]) -> None:
        """Wait for digests written after the last capture: whatever has moved since does not hang."""
        members = self.link.members.members
        before = {name: members[name].digest.count for name in names if name in members}
        self.link.hurry()
        end_s = self.link.clock() + _CONFIRM_S
        while self.link.clock() < end_s and any(
            # The next digest may have been on its way already.
            name in members and members[name].digest.count < count + 2
            for name, count in before.items()
        ):
            await asyncio.sleep(_POLL_S)
        self.link.rest()
