"""The options of those commands that tell somebody elsewhere of incidents."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

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
