"""``--notify``: apprise reports a real hang to a real HTTP server (``json://``) and by e-mail to a stand-in for a mail server.

The same hang goes through a real collector (``--otlp``).
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from mail_server import mail_server
from monitoring import webhook
from otlp_receivers import assert_told, backend, start_collector

from hangwatch.demos import find_scenario
from hangwatch.diagnosis.document import ended, make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import Incident
from hangwatch.outputs.briefing import Links
from hangwatch.outputs.bundle.bundle import list_incidents
from hangwatch.outputs.push.notifications import Notification, message_of
from hangwatch.outputs.push.senders import Push, PushError, Target, parse_target
from hangwatch.outputs.push.services import open_service
from recorded import load
from support import LONG_S, JobRunner

#: Importing apprise binds a socket (urllib3 asks whether there is IPv6), so none of these tests is pure.
pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).resolve().parents[2]
PATH = "T0k3n-0f-a-service"


def incident() -> Incident:
    """A recorded hang."""
    capture = load("rank_conditional")
    return make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)


def test_a_hang_of_a_real_job_is_sent_and_its_end(jobs: JobRunner, tmp_path: Path) -> None:
    """Under ``hangwatch run`` with all addresses in the environment, of a collector too; neither job nor log sees an address.

    Two messages go to each service.
    """
    scenario = find_scenario("rank-conditional")
    assert scenario is not None
    show = f'{sys.executable} -c \'from os import getenv as of; print("seen", of("HANGWATCH_NOTIFY"), of("HANGWATCH_OTLP"))\''
    with webhook() as server, mail_server() as post, backend() as kept:
        collector = start_collector(jobs, tmp_path, kept.url)
        mail = f"mailto://127.0.0.1:{post.port}?from=hangwatch@example.org&to=oncall@example.org"
        addresses = f"{server.url.replace('http://', 'json://')}/{PATH} {mail}"
        job = jobs.hangwatch(
            "run", "--on-hang", "stop", "--state-dir", tmp_path / "state", "--",
            "bash", "-c", f"{show}; exec {' '.join(scenario.command())}",
            env={
                **scenario.full_environment(), "HANGWATCH_NOTIFY": addresses, "HANGWATCH_OTLP": collector,
                "OTEL_METRIC_EXPORT_INTERVAL": "300", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            },
        )  # fmt: skip
        assert job.wait(LONG_S) == 75, job.stderr()
        (found,) = list_incidents(tmp_path / "state")
        assert_told(kept, found)
        first, last = [one.body for one in server.messages if one.path == f"/{PATH}"]
    assert "seen None None" in job.stdout()
    assert "otlp" not in job.stderr()
    assert first["type"] == "failure"
    assert first["title"].startswith("Deadlock, proven: rank_conditional.py on ")
    said = dict(line.split(": ", 1) for line in first["message"].splitlines()[1:])
    assert said["Culprit"].startswith("rank 0 at demos/rank_conditional.py:")
    assert {"Job", "Others", "Cause", "Do first", "Since", "More", "Bundle"} <= said.keys()
    assert (last["type"], last["title"].partition(":")[0]) == ("success", "Resolved")
    begun, over = post.mails
    assert (begun.sender, begun.receivers) == ("hangwatch@example.org", ("oncall@example.org",))
    assert begun.message["Subject"] == first["title"]
    assert over.message["Subject"] == last["title"]
    written = begun.message.get_body(("plain",))
    assert written is not None
    assert written.get_content().split() == first["message"].split()
    files = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert len(files) > 5
    for secret in (PATH, "oncall@example.org"):
        assert secret not in job.stdout() + job.stderr()
        assert not [file for file in files if secret in file.read_text(errors="replace")]


@asynccontextmanager
async def service(statuses: list[int]) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server that answers with one status after the other (the last for ever), and its address for apprise."""
    seen: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.Response(status=statuses.pop(0) if len(statuses) > 1 else statuses[0])

    application = web.Application()
    application.router.add_post(f"/{PATH}", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"json://127.0.0.1:{runner.addresses[0][1]}/{PATH}", seen
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds."""
    while not condition():
        await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_service_that_failed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """As with every receiver: once delivered, counted, complained of once, and the address is in no log."""
    caplog.set_level(logging.DEBUG)
    async with service([500, 500, 200]) as (address, seen):
        push = Push([parse_target("notify", address)])
        for _ in range(3):
            push.notify(incident(), None, Links())
        await asyncio.wait_for(until(lambda: push.metrics()[0].sent_total == 1), LONG_S)
        await push.close()
        (counted,) = push.metrics()
    assert (counted.name, counted.sent_total, counted.failures_total, counted.pending) == ("notify", 1, 2, 0)
    assert len(seen) == 3
    assert caplog.text.count("notify at json:// did not take the notification") == 1
    assert PATH not in caplog.text


def test_text_of_a_job_calls_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mentions are broken; control characters are escaped; a service is given a title and a body of bounded length."""
    import apprise

    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(apprise.Apprise, "notify", lambda _, **message: sent.append(message) or True)
    hostile = "@everyone <!channel> <@U1>\x1b[2J" + "x" * 10_000
    found = incident()
    found = msgspec.structs.replace(
        found,
        job=msgspec.structs.replace(found.job, id=hostile),
        verdict=msgspec.structs.replace(found.verdict, summary=hostile),
    )
    assert open_service("json://127.0.0.1/x")(message_of(Notification(found, None, "node"), None))
    (message,) = sent
    text = message["title"] + message["body"]
    assert not [mark for mark in ("@everyone", "<!channel", "<@U1", "\x1b") if mark in text]
    assert len(text) < 2500
    assert (message["notify_type"], message["body_format"]) == ("failure", "text")


def test_the_end_of_an_incident_that_was_sent_is_one_line() -> None:
    """And of one that was missed, the whole."""
    over = Notification(ended(incident(), 1_800_000_000_000_000_000), None, "node")
    short, full = message_of(over, Notification(incident(), None, "node")), message_of(over, None)
    assert short.over
    assert short.title.startswith("Resolved: ")
    assert "\n" not in short.body
    assert "\nCause: " in full.body


@pytest.mark.parametrize(
    "address",
    [
        "pagerduty://0123456789abcdef0123456789abcdef@apikey123",
        "workflows://example.org/0123456789abcdef0123456789abcdef/signaturesignature",  # Teams
        "discord://123456789012345678/abcdefghijklmnopqrstuvwxyz",
        "mailto://user:password@example.org",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "mmost://chat.example.org/token123",
    ],
)
def test_the_services_that_are_promised_are_there(address: str) -> None:
    """PagerDuty, Teams, Discord, e-mail, Slack and Mattermost: the pinned apprise takes their addresses. Nothing is sent."""
    target = parse_target("notify", address)
    assert target.shown == address.partition("://")[0] + "://"


def test_every_scheme_that_we_show_is_one_of_apprise() -> None:
    """In the page, in the error, and in the tests above: services go, and the pinned apprise has no ``msteams://``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import apprise
    details = apprise.Apprise().details()["schemas"]
    there = {scheme for one in details for kind in ("protocols", "secure_protocols") for scheme in one[kind] or ()}
    page = (ROOT / "docs" / "monitoring.md").read_text()
    (addresses,) = re.findall(r"<!-- addresses of apprise -->\n(.*?)\n\n", page, re.DOTALL)
    with pytest.raises(PushError) as error:
        parse_target("notify", "nosuch://")
    for text in (addresses, str(error.value)):
        shown = set(re.findall(r"\b([a-z]+)://", text))
        assert {"mailto", "pagerduty", "workflows", "slack"} <= shown
        assert shown <= there, shown - there
    assert "msteams" not in there


@pytest.mark.parametrize("address", ["", "nosuch://s3cret/x", "s3cret", "json://", "json://s3cret host\n/x"])
def test_an_address_that_no_service_has_is_not_shown(address: str) -> None:
    """One line that says what to give; and of a good one only the scheme is shown, as the host may be a token."""
    with pytest.raises(PushError, match=r"^not an address of apprise; for example ") as found:
        parse_target("notify", address)
    assert "s3cret" not in str(found.value)
    assert repr(Target("notify", "tgram://s3cret/chat")) == "Target(notify, tgram://)"


def test_without_apprise_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not there."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(PushError, match=r"^apprise is not installed; run: pip install 'apprise>=2\.2'$"):
        parse_target("notify", "json://127.0.0.1/x")
