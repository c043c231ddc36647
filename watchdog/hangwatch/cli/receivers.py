"""The options of those commands that tell somebody elsewhere of incidents."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from hangwatch.outputs.push import Target, parse_target

#: Addresses are best given by these variables: a command line is seen by everybody on the machine.
TARGET_VARIABLES = {kind: f"HANGWATCH_{kind.upper()}" for kind in ("alertmanager", "webhook", "slack")}
Alertmanager = Annotated[
    Optional[list[str]],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
    typer.Option(
        "--alertmanager",
        metavar="URL",
        envvar=TARGET_VARIABLES["alertmanager"],
        help="Send alerts to this Alertmanager (may be repeated).",
    ),
]
Webhook = Annotated[
    Optional[list[str]],  # noqa: UP045  # see above
    typer.Option(
        "--webhook",
        metavar="URL",
        envvar=TARGET_VARIABLES["webhook"],
        help="Post incidents to this address as JSON (may be repeated).",
    ),
]
Slack = Annotated[
    Optional[list[str]],  # noqa: UP045  # see above
    typer.Option(
        "--slack",
        metavar="URL",
        envvar=TARGET_VARIABLES["slack"],
        help="Post incidents to this incoming webhook of Slack or the like (may be repeated).",
    ),
]


def parse_targets(
    alertmanager: list[str] | None, webhook: list[str] | None, slack: list[str] | None
) -> tuple[Target, ...]:
    """Who is told of incidents beside this terminal. Raises ``PushError``."""
    given = {"alertmanager": alertmanager, "webhook": webhook, "slack": slack}
    return tuple(parse_target(kind, url) for kind, urls in given.items() for url in urls or () if url)
