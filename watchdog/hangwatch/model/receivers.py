"""The kinds of receivers of incidents: the one table for their options, settings and environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class ReceiverKind(NamedTuple):
    """A kind of receiver. ``name``: its key under ``[receivers]``. ``gets``: what its option does. ``example``: an address."""

    name: str
    gets: str
    example: str

    @property
    def option(self) -> str:
        """The command-line option of ``run`` and ``agent``."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable. It is safer than the option: every user of the machine can see a command line."""
        return f"HANGWATCH_{self.name.upper()}"


#: To add a kind, add a row here and what renders its messages in ``outputs.push.notifications.RECEIVERS``.
RECEIVER_KINDS: Mapping[str, ReceiverKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            ReceiverKind("alertmanager", "Send alerts to this Alertmanager", "http://127.0.0.1:9093"),
            ReceiverKind("webhook", "POST incidents as JSON to this URL", "https://alerts.example.org/hangwatch"),
            ReceiverKind(
                "notify",
                "Send incidents to this apprise address (Slack, PagerDuty, Teams, Discord, e-mail, ...)",
                "discord://WEBHOOK_ID/WEBHOOK_TOKEN",
            ),
            ReceiverKind(
                "otlp",
                "Send incidents (log events, spans) and metrics to this OpenTelemetry endpoint, OTLP over HTTP",
                "http://127.0.0.1:4318",
            ),
        )
    }
)
