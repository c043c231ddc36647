"""Tells Alertmanager, webhooks and Slack of incidents, for sites that have no rules on our metrics.

May import the other outputs and aiohttp. ``tell`` only puts a notice into an outbox a receiver; tasks of their own send
them, so no tick ever waits for a network. Addresses are secrets (a webhook's path is its password): of them, no more
than scheme and host is ever logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from hangwatch import __version__
from hangwatch.model.errors import PlainError
from hangwatch.model.incident import Incident
from hangwatch.outputs.metrics.view import ReceiverMetrics
from hangwatch.outputs.push.audit import note_told, was_told
from hangwatch.outputs.push.notices import RECEIVERS, Notice, Receiver, utc_now
from hangwatch.outputs.push.outbox import Outbox

log = logging.getLogger("hangwatch")

_TIMEOUT = aiohttp.ClientTimeout(total=10.0)
#: At the end of a job the last messages are waited for this long.
CLOSE_GRACE_S = 5.0
#: Statuses after which the same message may be taken later.
_TRY_AGAIN = frozenset({408, 425, 429})


class PushError(PlainError):
    """An address that cannot be used; the message is one line with the repair, and does not hold the address."""


@dataclass(frozen=True)
class Target:
    """A receiver's kind (a key of ``RECEIVERS``) and its address, which is a secret: ``repr`` does not show it."""

    kind: str
    url: str

    def __repr__(self) -> str:
        return f"Target({self.kind}, {self.shown})"

    @property
    def shown(self) -> str:
        """What may be logged of the address: scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parse_target(kind: str, url: str) -> Target:
    """An address as a user gives it; Alertmanager's with or without the path of its API.

    Raises:
        PushError: it is no http or https URL.
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise PushError(
            f"--{kind}: the address given is no http:// or https:// URL; write for example {_EXAMPLES[kind]}"
        )
    path = RECEIVERS[kind].path
    return Target(kind, url.strip().rstrip("/").removesuffix(path) if path else url.strip())


_EXAMPLES = {
    "alertmanager": "http://127.0.0.1:9093",
    "webhook": "https://alerts.example.org/hangwatch",
    "slack": "https://hooks.slack.com/services/...",
}


class Push:
    """Tells every target of every incident, until closed. All methods belong to one event loop."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._node = socket.gethostname()
        self._couriers: dict[str, _Courier] = {}
        for target in targets:
            same = sum(name.partition("#")[0] == target.kind for name in self._couriers)
            self._couriers[f"{target.kind}#{same + 1}" if same else target.kind] = _Courier(target)

    def tell(self, incident: Incident, bundle: Path | None) -> None:
        """Have it told; returns at once. What was told already is not told again, also where an agent before us did."""
        notice = Notice(incident, str(bundle) if bundle is not None else None, self._node)
        for courier in self._couriers.values():
            courier.put(notice)

    def metrics(self) -> tuple[ReceiverMetrics, ...]:
        """How the receivers fare."""
        boxes = ((name, courier.box) for name, courier in self._couriers.items())
        return tuple(ReceiverMetrics(name, box.sent, box.failures, box.pending) for name, box in boxes)

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Wait for what has not been told yet, but not for long; what is still untold then is logged."""
        await asyncio.gather(*(courier.close(grace_s) for courier in self._couriers.values()))


class _Courier:
    """One target, its outbox, and the task that empties it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.receiver: Receiver = RECEIVERS[target.kind]
        self.box = Outbox(self.receiver.repeat_s)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained = ""

    def put(self, notice: Notice) -> None:
        told = not self.box.knows(notice) and was_told(notice, self._name)
        if self.box.put(notice, time.monotonic(), told=told):
            self._idle.clear()
            self._news.set()
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name=f"push to {self.target.kind}")

    async def close(self, grace_s: float) -> None:
        if self._task is None:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        if self.box.pending:
            log.warning("%s was not told of %d incident(s)", self._name, self.box.pending)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def _name(self) -> str:
        return f"{self.target.kind} at {self.target.shown}"

    async def _run(self) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": f"hangwatch/{__version__}"}
        async with aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers, trust_env=True) as session:
            while True:
                self._news.clear()
                found = self.box.take(time.monotonic())
                if found is not None:
                    await self._send(session, *found)
                    continue
                if not self.box.pending:
                    self._idle.set()
                due_s = self.box.next_due_s()
                # Agents of many nodes must not come at the same moment to a receiver that is back.
                spread = random.uniform(1.0, 1.2)  # noqa: S311  # no secret
                pause_s = None if due_s is None else spread * max(0.01, due_s - time.monotonic())
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._news.wait(), pause_s)

    async def _send(self, session: aiohttp.ClientSession, notice: Notice, before: Notice | None) -> None:
        body = self.receiver.render(notice, before, utc_now())
        try:
            async with session.post(self.target.url + self.receiver.path, data=body, allow_redirects=False) as answer:
                status, wait_s = answer.status, _retry_after_s(answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            self.box.failed(time.monotonic())
            self._complain(f"cannot be reached ({_reason(error)}); it is tried again")
            return
        if 200 <= status < 300:
            self.box.delivered(notice, time.monotonic())
            self._complained = ""
            if before is None or before.key != notice.key:
                note_told(notice, self._name)
        elif status >= 500 or status in _TRY_AGAIN:
            self.box.failed(time.monotonic(), wait_s)
            self._complain(f"answers {status}; it is tried again")
        else:
            self.box.refused(notice, time.monotonic())
            self._complain(f"refuses the message with {status}; check the address and its token")

    def _complain(self, what: str) -> None:
        """Once for each new reason, not once for each try."""
        if what != self._complained:
            self._complained = what
            log.warning("%s %s", self._name, what)


def _reason(error: Exception) -> str:
    """Why a request failed, without the address that aiohttp's own texts may hold."""
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else type(cause).__name__


def _retry_after_s(value: str | None) -> float | None:
    """The seconds of a ``Retry-After`` header; its other form, a date, is not worth parsing."""
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 6 else None
