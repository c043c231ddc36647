"""Telling real HTTP servers, some of which are slow, broken or away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from examples import hang_incident

from hangwatch.outputs.briefing import Links
from hangwatch.outputs.push.notifications import RECEIVERS
from hangwatch.outputs.push.senders import Push, PushError, Target, parse_target
from support import LONG_S, find_free_port

SECRET = "s3cret-part"  # noqa: S105  # what must not be seen


@asynccontextmanager
async def receiver(statuses: list[int], port: int = 0, delay_s: float = 0.0) -> AsyncIterator[tuple[str, list[object]]]:
    """A server that answers with one status after the other (the last for ever) and keeps what it was sent."""
    seen: list[object] = []

    async def take(request: web.Request) -> web.Response:
        await asyncio.sleep(delay_s)
        seen.append(await request.json())
        return web.Response(status=statuses.pop(0) if len(statuses) > 1 else statuses[0])

    application = web.Application()
    application.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/{SECRET}", seen
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds; ``run`` limits the time."""
    while not condition():
        await asyncio.sleep(0.01)


def run(body: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a test's coroutine, for a limited time."""
    asyncio.run(asyncio.wait_for(body(), LONG_S))


@pytest.mark.usefixtures("real")
def test_every_receiver_gets_start_and_end_once() -> None:
    """Each kind of receiver gets two messages, however often the agent says the same."""

    async def body() -> None:
        async with receiver([200]) as (url, seen):
            push = Push([Target(kind, url) for kind in RECEIVERS])
            for _ in range(3):
                push.notify(hang_incident(), Path("/bundle"), Links())
            await until(lambda: len(seen) == 2)
            push.notify(hang_incident("2026-05-28T21:00:00.000Z"), Path("/bundle"), Links())
            await push.close()
            assert len(seen) == 4
            assert [(m.name, m.sent_total, m.failures_total, m.pending) for m in push.metrics()] == [
                ("alertmanager", 2, 0, 0), ("webhook", 2, 0, 0),
            ]  # fmt: skip

    run(body)


@pytest.mark.usefixtures("real")
def test_a_receiver_that_comes_back_is_notified(caplog: pytest.LogCaptureFixture) -> None:
    """Errors of the server and a refused connection are retried; the log has each reason once and no secret."""

    async def body() -> None:
        port = find_free_port()
        push = Push([Target("webhook", f"http://user:{SECRET}@127.0.0.1:{port}/{SECRET}?token={SECRET}")])
        push.notify(hang_incident(), None, Links())
        await until(lambda: push.metrics()[0].failures_total >= 1)
        async with receiver([503, 204], port) as (_, seen):
            await until(lambda: push.metrics()[0].sent_total == 1)
            assert len(seen) == 2
        await push.close()

    with caplog.at_level(logging.DEBUG):
        run(body)
    said = [r.getMessage() for r in caplog.records if r.name == "hangwatch"]
    assert len(said) == 2
    assert all("retrying" in text for text in said)
    assert SECRET not in caplog.text


@pytest.mark.usefixtures("real")
def test_telling_never_waits() -> None:
    """A receiver that does not answer holds nothing up: notifying is over before it has been reached, closing is bounded."""

    async def body() -> None:
        async with receiver([200], delay_s=60.0) as (url, seen):
            push = Push([Target("webhook", url)])
            push.notify(hang_incident(), None, Links())
            assert push.metrics()[0].pending == 1
            await push.close(grace_s=0.2)
            assert (seen, push.metrics()[0].pending) == ([], 1)

    run(body)


@pytest.mark.usefixtures("real")
def test_a_rejected_notification_is_logged_once_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong address or token is one line with the repair; the same message is not sent again."""

    async def body() -> None:
        async with receiver([403]) as (url, seen):
            push = Push([Target("webhook", url)])
            push.notify(hang_incident(), None, Links())
            await push.close()
            assert len(seen) == 1

    run(body)
    (said,) = [r.getMessage() for r in caplog.records if r.name == "hangwatch"]
    assert "rejected the notification with status 403; check the URL and its token" in said
    assert SECRET not in said


def test_receivers_of_one_kind_have_their_own_metrics() -> None:
    """Two Alertmanagers of a cluster both get the alert, and each has its own metrics."""
    push = Push(
        [Target("alertmanager", "http://a:1"), Target("alertmanager", "http://b:1"), Target("webhook", "http://c")]
    )
    assert [m.name for m in push.metrics()] == ["alertmanager", "alertmanager#2", "webhook"]


@pytest.mark.parametrize(
    "url", ["", "alerts.example.org/x", "ftp://h/x", "http://?x", "http://h:0x/", "http://[::1/x", "http:///x"]
)
def test_an_address_that_cannot_be_used_is_not_shown(url: str) -> None:
    """The error has an example; what was given may be a secret."""
    with pytest.raises(PushError, match=r"^not an .*; for example https://alerts\.example\.org/") as caught:
        parse_target("webhook", url)
    assert not url or url not in str(caught.value)


def test_an_address_is_never_shown_whole() -> None:
    """What may appear in a traceback or a log holds neither password nor path."""
    target = parse_target("alertmanager", f"https://user:{SECRET}@alerts.example.org:9093/{SECRET}/api/v2/alerts")
    assert repr(target) == "Target(alertmanager, https://alerts.example.org:9093)"
    assert target.url.endswith(f"/{SECRET}")
