"""Sends incidents to Alertmanager, webhooks, services of apprise and OTLP, for sites without alert rules on our metrics.

May import the other outputs. ``notify`` only adds a notification to the outbox of each receiver; separate tasks
send them, so no tick ever waits for a network. URLs are secrets (a webhook's path is its password): only scheme and host
are ever logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hangwatch.model.incident import Incident
from hangwatch.model.receivers import RECEIVER_KINDS
from hangwatch.outputs.briefing import Links
from hangwatch.outputs.metrics.view import ReceiverMetrics
from hangwatch.outputs.push.audit import record_notified, was_notified
from hangwatch.outputs.push.notifications import RECEIVERS, Notification, message_of
from hangwatch.outputs.push.otlp.endpoint import OtlpEndpoint, check_installed
from hangwatch.outputs.push.outbox import Outbox
from hangwatch.outputs.push.services import open_service, scheme_of
from hangwatch.outputs.push.transports import ACCEPTED, Attempt, Blocking, Complaints, Http, PushError, Transport

log = logging.getLogger("hangwatch")

#: The kind of receivers with addresses of apprise.
SERVICE = "notify"
#: The kind of OTLP endpoints, which get the metrics as well (``otlp.feed``).
OTLP = "otlp"
#: Grace period for undelivered notifications at the end of a job.
CLOSE_GRACE_S = 5.0
_NOT_TAKEN = Attempt("later", "did not take the notification; check its address; retrying")


@dataclass(frozen=True)
class Target:
    """A receiver: its kind (of ``RECEIVERS``, ``notify`` or ``otlp``) and its URL, a secret that ``repr`` does not show."""

    kind: str
    url: str

    def __repr__(self) -> str:
        return f"Target({self.kind}, {self.shown})"

    @property
    def shown(self) -> str:
        """The part of the URL that may be logged: scheme, host and port; only the scheme if the host may be a token."""
        if self.kind == SERVICE:
            return scheme_of(self.url)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def name(self) -> str:
        """The name for logs and audit records."""
        return f"{self.kind} at {self.shown}"


def parse_target(kind: str, url: str) -> Target:
    """Parse a URL given by the user; Alertmanager's with or without the path of its API.

    Raises:
        PushError: it is not an http or https URL, for ``notify`` not an address of apprise, or its extra is missing.
    """
    if kind == SERVICE:
        open_service(url.strip())
        return Target(kind, url.strip())
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise PushError(f"not an http:// or https:// URL; for example {RECEIVER_KINDS[kind].example}")
    if kind == OTLP:
        check_installed()
        return Target(kind, url.strip())
    path = RECEIVERS[kind].path
    return Target(kind, url.strip().rstrip("/").removesuffix(path) if path else url.strip())


def find_targets(receivers: msgspec.Struct) -> tuple[Target, ...]:
    """Return the receivers of incidents. ``receivers``: addresses by kind. Raises ``PushError`` for a malformed address."""
    given = msgspec.structs.asdict(receivers)
    return tuple(parse_target(kind, url) for kind, urls in given.items() for url in urls if url)


class Push:
    """Notifies every target of every incident, until closed. All methods must be called in one event loop."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._node = socket.gethostname()
        self._couriers: dict[str, _Courier] = {}
        for target in targets:
            same = sum(name.partition("#")[0] == target.kind for name in self._couriers)
            self._couriers[f"{target.kind}#{same + 1}" if same else target.kind] = _Courier(target, self._node)

    def notify(self, incident: Incident, bundle: Path | None, links: Links) -> None:
        """Queue a notification, and return at once.

        Nothing is sent again that this or an earlier agent has delivered.
        """
        notification = Notification(incident, str(bundle) if bundle is not None else None, self._node, links)
        for courier in self._couriers.values():
            courier.put(notification)

    def metrics(self) -> tuple[ReceiverMetrics, ...]:
        """Return delivery statistics of each receiver."""
        boxes = ((name, courier.box) for name, courier in self._couriers.items())
        return tuple(ReceiverMetrics(name, box.sent, box.failures, box.pending) for name, box in boxes)

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Wait up to ``grace_s`` for undelivered notifications; log those that are left."""
        await asyncio.gather(*(courier.close(grace_s) for courier in self._couriers.values()))


def open_endpoints(targets: Sequence[Target]) -> list[tuple[str, OtlpEndpoint]]:
    """Return the OTLP endpoints of the metrics, each with a name that may be logged."""
    return [(one.name, OtlpEndpoint(one.url, socket.gethostname())) for one in targets if one.kind == OTLP]


def _open_transport(target: Target, node: str) -> Transport:
    if target.kind == SERVICE:
        deliver = open_service(target.url)

        def send(notification: Notification, before: Notification | None) -> Attempt:
            return ACCEPTED if deliver(message_of(notification, before)) else _NOT_TAKEN

        return Blocking(target.kind, send)
    if target.kind == OTLP:
        endpoint = OtlpEndpoint(target.url, node)
        return Blocking(target.kind, endpoint.send_incident, endpoint.close)
    return Http(RECEIVERS[target.kind], target.url)


class _Courier:
    """One target, its outbox, and the task that sends from it."""

    def __init__(self, target: Target, node: str) -> None:
        self.target = target
        self._transport = _open_transport(target, node)
        self.box = Outbox(self._transport.repeat_s)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complaints = Complaints(target.name)

    def put(self, notification: Notification) -> None:
        delivered = not self.box.knows(notification) and was_notified(notification, self.target.name)
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
            log.warning("%s: %d notification(s) not delivered", self.target.name, self.box.pending)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

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
            await self._transport.close()

    async def _send(self, notification: Notification, before: Notification | None) -> None:
        answer = await self._transport.send(notification, before)
        self._complaints.hear(answer)
        if answer.state == "accepted":
            self.box.delivered(notification, time.monotonic())
            if before is None or before.key != notification.key:
                record_notified(notification, self.target.name)
            return
        if answer.state == "later":
            self.box.failed(time.monotonic(), answer.wait_s)
        else:
            self.box.refused(notification, time.monotonic())
