"""``--otlp``: what refuses, is away or never answers harms nothing. ``test_e2e_services.py`` has a real hang, and a collector."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from otlp_receivers import backend

from hangwatch.diagnosis.document import ended, make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import Incident
from hangwatch.outputs.briefing import Links
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.push.otlp.feed import MetricsFeed
from hangwatch.outputs.push.senders import Push, PushError, Target, open_endpoints, parse_target
from recorded import load
from support import LONG_S, JobRunner, find_free_port, wait_for

pytestmark = pytest.mark.usefixtures("real")

TOKEN = "T0k3n-of-a-backend"  # noqa: S105  # what must not be seen


def incident() -> Incident:
    """A recorded hang."""
    capture = load("rank_conditional")
    return make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)


def over() -> Incident:
    """The same, when it is over."""
    return ended(incident(), load("rank_conditional").at_ns + 60_000_000_000)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds."""
    while not condition():
        await asyncio.sleep(0.01)


def test_a_reloaded_agent_sends_its_metrics_to_where_it_is_told_then(jobs: JobRunner, tmp_path: Path) -> None:
    """A second endpoint in the settings file, SIGHUP: it gets the metrics from then on, without a restart."""
    file = tmp_path / "hangwatch.toml"
    watched = jobs.start(["sleep", "infinity"])
    with backend() as first, backend() as second:
        file.write_text(f'[receivers]\notlp = ["{first.url}"]\n')
        agent = jobs.hangwatch(
            "agent", "--pid", str(watched.pid), "--config", file, "--state-dir", tmp_path / "state",
            env={"OTEL_METRIC_EXPORT_INTERVAL": "200"},
        )  # fmt: skip
        wait_for(first.metrics, LONG_S, "the first metrics")
        file.write_text(f'[receivers]\notlp = ["{second.url}"]\n')
        agent.send(signal.SIGHUP)
        wait_for(second.metrics, LONG_S, "metrics at the other endpoint")
        agent.send(signal.SIGTERM)
        assert agent.wait() == 0, agent.stderr()


@pytest.mark.asyncio
async def test_what_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody listens: one line however often it is tried, and one at the end; neither has the address's path."""
    caplog.set_level(logging.DEBUG)
    port = find_free_port()
    push = Push([parse_target("otlp", f"http://127.0.0.1:{port}/{TOKEN}")])
    push.notify(over(), None, Links())
    await asyncio.wait_for(until(lambda: push.metrics()[0].failures_total >= 1), LONG_S)
    await push.close(grace_s=0.1)
    said = [r.getMessage() for r in caplog.records if r.name == "hangwatch"]
    assert said == [
        f"otlp at http://127.0.0.1:{port} is unreachable; retrying",
        f"otlp at http://127.0.0.1:{port}: 1 notification(s) not delivered",
    ]
    assert TOKEN not in caplog.text


@pytest.mark.asyncio
async def test_a_failed_half_is_sent_again_and_the_other_is_not(caplog: pytest.LogCaptureFixture) -> None:
    """The event was taken and the span was not (500): at the next attempt only the span goes out."""
    with backend(200, 500, 200) as kept:
        push = Push([parse_target("otlp", kept.url)])
        push.notify(over(), None, Links())
        await asyncio.wait_for(until(lambda: push.metrics()[0].sent_total == 1), LONG_S)
        await push.close()
        assert (len(kept.events()), len(kept.spans())) == (1, 1)
    assert [r.getMessage() for r in caplog.records if r.name == "hangwatch"] == [
        f"otlp at {kept.url} answered with status 500; retrying"
    ]


@pytest.mark.asyncio
async def test_what_is_refused_is_said_once_and_not_sent_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong token; the header of OpenTelemetry's own variable was sent, and is in no log."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={TOKEN}")
    with backend(401) as kept:
        push = Push([parse_target("otlp", kept.url)])
        push.notify(incident(), None, Links())
        await asyncio.wait_for(until(lambda: push.metrics()[0].failures_total == 1), LONG_S)
        await push.close()
        assert {name.lower(): value for name, value in kept.headers.items()}["api-key"] == TOKEN
    said = [r.getMessage() for r in caplog.records if r.name == "hangwatch"]
    assert said == [f"otlp at {kept.url} rejected the notification with status 401; check the URL and its token"]
    assert TOKEN not in caplog.text


@pytest.mark.asyncio
async def test_what_never_answers_holds_nothing_up() -> None:
    """A port that takes a connection and says nothing: notifying returns at once, and closing when its grace is over."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        targets = [parse_target("otlp", f"http://127.0.0.1:{silent.getsockname()[1]}")]
        push, feed = Push(targets), MetricsFeed(open_endpoints(targets), Metrics().families)
        feed.start()
        push.notify(incident(), None, Links())
        assert push.metrics()[0].pending == 1
        await asyncio.gather(push.close(grace_s=0.1), feed.close(grace_s=0.1))
        assert push.metrics()[0].sent_total == 0


@pytest.mark.asyncio
async def test_a_signal_is_not_sent_where_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By OpenTelemetry's own variables: a backend for logs alone gets no spans and no metrics."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with backend() as kept:
        targets = [parse_target("otlp", kept.url)]
        push, feed = Push(targets), MetricsFeed(open_endpoints(targets), Metrics().families)
        feed.start()
        push.notify(over(), None, Links())
        await push.close(LONG_S)
        await feed.close(LONG_S)
        assert (len(kept.events()), len(kept.messages)) == (1, 1)


@pytest.mark.asyncio
async def test_the_last_metrics_are_sent_at_the_end() -> None:
    """Long before the interval is over (a minute): a short job's numbers are there."""
    with backend() as kept:
        feed = MetricsFeed(open_endpoints([Target("otlp", kept.url)]), Metrics().families)
        feed.start()
        await feed.close(LONG_S)
        assert "hangwatch_incidents_total" in kept.metrics()


@pytest.mark.parametrize("address", ["", "127.0.0.1:4318", "grpc://s3cret:4317", "http://"])
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    """One line, without the address."""
    with pytest.raises(PushError, match=r"^not an http:// or https:// URL; for example http://127\.0\.0\.1:4318$"):
        parse_target("otlp", address)


def test_without_opentelemetry_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not there."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http._log_exporter", None)
    with pytest.raises(PushError, match=r"^OpenTelemetry is not installed; run: pip install 'opentelemetry-sdk"):
        parse_target("otlp", "http://127.0.0.1:4318")
