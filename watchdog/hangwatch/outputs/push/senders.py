"""Sends incidents to Alertmanager, webhooks, Slack and the services of apprise, for sites without alert rules on our metrics.

May import the other outputs and aiohttp. ``notify`` only adds a notification to the outbox of each receiver; separate tasks
send them, so no tick ever waits for a network. URLs are secrets (a webhook's path is its password): only scheme and host
are ever logged.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from hangwatch import __version__
from hangwatch.model.errors import PlainError
from hangwatch.model.incident import Incident
from hangwatch.outputs.metrics.view import ReceiverMetrics
from hangwatch.outputs.push.audit import record_notified, was_notified
from hangwatch.outputs.push.notifications import RECEIVERS, Message, Notification, Receiver, message_of, utc_now
from hangwatch.outputs.push.outbox import Outbox
from hangwatch.outputs.push.services import Deliver, ServiceError, open_service, scheme_of

log = logging.getLogger("hangwatch")

#: The kind of receivers that are addresses of apprise.
SERVICE = "notify"
_TIMEOUT = aiohttp.ClientTimeout(total=10.0)
#: Grace period for undelivered notifications at the end of a job.
CLOSE_GRACE_S = 5.0
#: HTTP statuses after which the same message may be accepted later.
_TRY_AGAIN = frozenset({408, 425, 429})


class PushError(PlainError):
    """An unusable URL; the message is one line with the repair, and does not contain the URL."""


@dataclass(frozen=True)
class Target:
    """A receiver's kind (a key of ``RECEIVERS``, or ``notify``) and its URL, which is a secret: ``repr`` does not show it."""

    kind: str
    url: str

    def __repr__(self) -> str:
        return f"Target({self.kind}, {self.shown})"

    @property
    def shown(self) -> str:
        """The part of the URL that may be logged: scheme, host and port; the scheme alone where the host may be a token."""
        if self.kind == SERVICE:
            return scheme_of(self.url)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parse_target(kind: str, url: str) -> Target:
    """Parse a URL given by the user; Alertmanager's with or without the path of its API.

    Raises:
        PushError: it is not an http or https URL, or for ``notify`` not an address of apprise.
    """
    if kind == SERVICE:
        try:
            open_service(url.strip())
        except ServiceError as error:
            raise PushError(str(error)) from None
        return Target(kind, url.strip())
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise PushError(f"--{kind}: not an http:// or https:// URL; for example {_EXAMPLES[kind]}")
    path = RECEIVERS[kind].path
    return Target(kind, url.strip().rstrip("/").removesuffix(path) if path else url.strip())


_EXAMPLES = {
    "alertmanager": "http://127.0.0.1:9093",
    "webhook": "https://alerts.example.org/hangwatch",
    "slack": "https://hooks.slack.com/services/...",
}


class Push:
    """Notifies every target of every incident, until closed. All methods must be called in one event loop."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._node = socket.gethostname()
        self._couriers: dict[str, _Courier] = {}
        for target in targets:
            same = sum(name.partition("#")[0] == target.kind for name in self._couriers)
            self._couriers[f"{target.kind}#{same + 1}" if same else target.kind] = _Courier(target)

    def notify(self, incident: Incident, bundle: Path | None) -> None:
        """Queue a notification; returns at once. What this or an earlier agent has delivered already is not sent again."""
        notification = Notification(incident, str(bundle) if bundle is not None else None, self._node)
        for courier in self._couriers.values():
            courier.put(notification)

    def metrics(self) -> tuple[ReceiverMetrics, ...]:
        """Delivery statistics of each receiver."""
        boxes = ((name, courier.box) for name, courier in self._couriers.items())
        return tuple(ReceiverMetrics(name, box.sent, box.failures, box.pending) for name, box in boxes)

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Wait up to ``grace_s`` for undelivered notifications; log those that are left."""
        await asyncio.gather(*(courier.close(grace_s) for courier in self._couriers.values()))


class _Answer(NamedTuple):
    """What became of one attempt. ``wait_s``: for how long the receiver asked us to wait; ``why``: what to log if it failed."""

    state: Literal["accepted", "later", "refused"]
    why: str = ""
    wait_s: float | None = None


class _Http:
    """A receiver of ``RECEIVERS``: one POST a notification."""

    def __init__(self, target: Target) -> None:
        self.receiver: Receiver = RECEIVERS[target.kind]
        self.repeat_s = self.receiver.repeat_s
        self._url = target.url + self.receiver.path
        self._session: aiohttp.ClientSession | None = None

    async def send(self, notification: Notification, before: Notification | None) -> _Answer:
        if self._session is None:
            headers = {"Content-Type": "application/json", "User-Agent": f"hangwatch/{__version__}"}
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers, trust_env=True)
        body = self.receiver.render(notification, before, utc_now())
        try:
            async with self._session.post(self._url, data=body, allow_redirects=False) as answer:
                status, wait_s = answer.status, _retry_after_s(answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            return _Answer("later", f"is unreachable ({_reason(error)}); retrying")
        if 200 <= status < 300:
            return _Answer("accepted")
        if status >= 500 or status in _TRY_AGAIN:
            return _Answer("later", f"answered with status {status}; retrying", wait_s)
        return _Answer("refused", f"rejected the notification with status {status}; check the URL and its token")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class _Service:
    """An address of apprise, which blocks: it has a thread of its own, so that a slow service holds up nothing else."""

    repeat_s: float | None = None

    def __init__(self, target: Target) -> None:
        self._deliver: Deliver = open_service(target.url)
        self._thread = ThreadPoolExecutor(1, "hangwatch notify")

    async def send(self, notification: Notification, before: Notification | None) -> _Answer:
        message: Message = message_of(notification, before)
        sent = await asyncio.get_running_loop().run_in_executor(self._thread, self._deliver, message)
        return (
            _Answer("accepted")
            if sent
            else _Answer("later", "did not take the notification; check its address; retrying")
        )

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Courier:
    """One target, its outbox, and the task that sends from it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._sender = _Service(target) if target.kind == SERVICE else _Http(target)
        self.box = Outbox(self._sender.repeat_s)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained = ""

    def put(self, notification: Notification) -> None:
        delivered = not self.box.knows(notification) and was_notified(notification, self._name)
        if self.box.put(notification, time.monotonic(), delivered=delivered):
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
            log.warning("%s: %d notification(s) not delivered", self._name, self.box.pending)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @property
    def _name(self) -> str:
        return f"{self.target.kind} at {self.target.shown}"

    async def _run(self) -> None:
        try:
            while True:
                self._news.clear()
                found = self.box.take(time.monotonic())
                if found is not None:
                    await self._send(*found)
                    continue
                if not self.box.pending:
                    self._idle.set()
                due_s = self.box.next_due_s()
                # Agents of many nodes must not all retry at the same moment.
                spread = random.uniform(1.0, 1.2)  # noqa: S311  # no secret
                pause_s = None if due_s is None else spread * max(0.01, due_s - time.monotonic())
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._news.wait(), pause_s)
        finally:
            await self._sender.close()

    async def _send(self, notification: Notification, before: Notification | None) -> None:
        answer = await self._sender.send(notification, before)
        if answer.state == "accepted":
            self.box.delivered(notification, time.monotonic())
            self._complained = ""
            if before is None or before.key != notification.key:
                record_notified(notification, self._name)
            return
        if answer.state == "later":
            self.box.failed(time.monotonic(), answer.wait_s)
        else:
            self.box.refused(notification, time.monotonic())
        self._complain(answer.why)

    def _complain(self, what: str) -> None:
        """Log each new reason once, not once per attempt."""
        if what != self._complained:
            self._complained = what
            log.warning("%s %s", self._name, what)


def _reason(error: Exception) -> str:
    """Why a request failed, without the URL that aiohttp's messages may contain."""
    if isinstance(error, asyncio.TimeoutError):
        return "timed out"
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else type(cause).__name__


def _retry_after_s(value: str | None) -> float | None:
    """The seconds of a ``Retry-After`` header; its other form, a date, is ignored."""
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 6 else None
