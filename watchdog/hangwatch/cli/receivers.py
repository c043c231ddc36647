"""Options for the receivers of incident notifications."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

#: These variables are safer than the options: every user of the machine can see a command line.
TARGET_VARIABLES = {kind: f"HANGWATCH_{kind.upper()}" for kind in ("alertmanager", "webhook", "notify", "otlp")}
Alertmanager = Annotated[
    Optional[list[str]],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
    typer.Option(
        "--alertmanager",
        metavar="URL",
        envvar=TARGET_VARIABLES["alertmanager"],
        help="Send alerts to this Alertmanager; repeatable.",
    ),
]
Webhook = Annotated[
    Optional[list[str]],  # noqa: UP045  # see above
    typer.Option(
        "--webhook",
        metavar="URL",
        envvar=TARGET_VARIABLES["webhook"],
        help="POST incidents as JSON to this URL; repeatable.",
    ),
]
Notify = Annotated[
    Optional[list[str]],  # noqa: UP045  # see above
    typer.Option(
        "--notify",
        metavar="URL",
        envvar=TARGET_VARIABLES["notify"],
        help="Send incidents to this apprise address (Slack, PagerDuty, Teams, Discord, e-mail, ...); repeatable.",
    ),
]
Otlp = Annotated[
    Optional[list[str]],  # noqa: UP045  # see above
    typer.Option(
        "--otlp",
        metavar="URL",
        envvar=TARGET_VARIABLES["otlp"],
        help="Send incidents (log events, spans) and metrics to this OpenTelemetry endpoint, OTLP over HTTP; repeatable.",
    ),
]
