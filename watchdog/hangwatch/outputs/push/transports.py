"""Delivers a notification to a receiver and says how that went: our own POST, or a blocking library in its own thread.

May import aiohttp and the other files of this folder. An answer says why it failed, without the URL.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, Protocol

import aiohttp

from hangwatch import __version__
from hangwatch.model.errors import PlainError
from hangwatch.outputs.push.notifications import Notification, Receiver, utc_now

log = logging.getLogger("hangwatch")

#: Time limit of one attempt, for every kind of receiver.
TIMEOUT_S = 10.0
#: HTTP statuses after which the same message may be accepted later.
_TRY_AGAIN = frozenset({408, 425, 429})


class PushError(PlainError):
    """An unusable address, or a missing package; the message is one line with the repair, and does not contain the address."""


class Attempt(NamedTuple):
    """The outcome of one attempt.

    ``wait_s``: how long the receiver asked us to wait. ``why``: what to log if it failed.
    """

    state: Literal["accepted", "later", "refused"]
    why: str = ""
    wait_s: float | None = None


ACCEPTED = Attempt("accepted")


def judge_status(status: int, wait_s: float | None = None) -> Attempt:
    """Return the outcome that an HTTP status means."""
    if 200 <= status < 300:
        return ACCEPTED
    if status >= 500 or status in _TRY_AGAIN:
        return Attempt("later", f"answered with status {status}; retrying", wait_s)
    return Attempt("refused", f"rejected the notification with status {status}; check the URL and its token")


class Complaints:
    """Logs each new reason once, not once per attempt. ``name``: the receiver's name without secrets."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def hear(self, answer: Attempt) -> None:
        """Log the reason of a failed attempt if it is new; an accepted attempt has none."""
        if answer.why and answer.why != self._last:
            log.warning("%s %s", self._name, answer.why)
        self._last = answer.why


class Transport(Protocol):
    """Sends to one receiver. ``repeat_s``: how often an open incident is sent again; None: never."""

    repeat_s: float | None

    async def send(self, notification: Notification, before: Notification | None) -> Attempt:
        """Make one attempt. ``before``: what the receiver has accepted of this incident before."""

    async def close(self) -> None:
        """Free resources; cut short an attempt under way if possible."""


class Http:
    """A receiver of ``notifications.RECEIVERS``: one POST a notification."""

    def __init__(self, receiver: Receiver, url: str) -> None:
        self.receiver = receiver
        self.repeat_s = receiver.repeat_s
        self._url = url + receiver.path
        self._session: aiohttp.ClientSession | None = None

    async def send(self, notification: Notification, before: Notification | None) -> Attempt:
        if self._session is None:
            headers = {"Content-Type": "application/json", "User-Agent": f"hangwatch/{__version__}"}
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=True)
        body = self.receiver.render(notification, before, utc_now())
        try:
            async with self._session.post(self._url, data=body, allow_redirects=False) as answer:
                return judge_status(answer.status, _retry_after_s(answer.headers.get("Retry-After")))
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            return Attempt("later", f"is unreachable ({_reason(error)}); retrying")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class Blocking:
    """A blocking library: ``deliver`` is called in its own thread, so that a slow receiver delays nothing else."""

    repeat_s: float | None = None

    def __init__(
        self,
        name: str,
        deliver: Callable[[Notification, Notification | None], Attempt],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._deliver, self._end = deliver, end
        self._thread = ThreadPoolExecutor(1, f"hangwatch {name}")

    async def send(self, notification: Notification, before: Notification | None) -> Attempt:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._deliver, notification, before)

    async def close(self) -> None:
        self._end()
        self._thread.shutdown(wait=False, cancel_futures=True)


def _reason(error: Exception) -> str:
    """Return why a request failed, without the URL that aiohttp's messages may contain."""
    if isinstance(error, asyncio.TimeoutError):
        return "timed out"
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else type(cause).__name__


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; its other form, a date, is ignored."""
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 6 else None
