"""Notifications through apprise (extra ``apprise``, written for 2.2): PagerDuty, Teams, Discord, e-mail and a hundred others.

May import the model and, once an address is configured, apprise. The whole of an apprise address after the scheme is
secret: for many services the host is a token. Only the scheme is ever shown, and apprise itself logs nothing.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from hangwatch.outputs.push.notifications import Message
from hangwatch.outputs.push.transports import TIMEOUT_S, PushError

_TYPES = {"critical": "failure", "warning": "warning"}

#: Sends a message; blocks until the service has taken it (True) or not.
Deliver = Callable[[Message], bool]


def scheme_of(url: str) -> str:
    """Return the part of an address that may be shown."""
    return f"{url.partition('://')[0]}://"


def open_service(url: str) -> Deliver:
    """Return a function that sends messages to an apprise address (its services: github.com/caronc/apprise, README).

    Raises:
        PushError: apprise is not installed, or no service has such an address.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about imports of apprise
        try:
            import apprise
        except ModuleNotFoundError:
            raise PushError("apprise is not installed; run: pip install 'apprise>=2.2'") from None
        # Their messages may contain parts of the address; we report failures ourselves.
        for name in ("apprise", "requests", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        services = apprise.Apprise(
            asset=apprise.AppriseAsset(app_id="hangwatch", app_desc="hangwatch", async_mode=False)
        )
        if not url.isprintable() or not services.add(url):
            example = "mailto://..., pagerduty://..., workflows://... (Teams), slack://..."
            raise PushError(f"not an address of apprise; for example {example}")

    def deliver(message: Message) -> bool:
        kind = "success" if message.over else _TYPES.get(message.severity, "info")
        sent = services.notify(
            body=_quiet(message.body),
            title=_quiet(message.title),
            notify_type=kind,
            body_format="text",
            interpret_escapes=False,
            timeout=TIMEOUT_S,
        )
        return bool(sent)

    return deliver


def _quiet(text: str) -> str:
    """Return a job's text so that it mentions no one.

    Chats react to ``@everyone`` and ``<!channel>``; with a zero-width space inside they do not.
    """
    return text.replace("@", "@\u200b").replace("<!", "<\u200b!")
