"""Whole documents: head, header and footer around the content, and the content security policy."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from markupsafe import Markup

from hangwatch import __version__
from hangwatch.outputs.html.elements import NOTHING, plain

#: The agent's pages may load their own style and script from the same origin, and nothing else.
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)

#: Characters of a query: enough for a list of ranks copied from the page.
MAX_QUERY = 300
#: The header of the live page: the search field, what it has found in words, the connection and a new verdict.
_LIVE = Markup(
    '<search><input id="search" type="search" maxlength="{}" placeholder="Rank, node, group or state" autocomplete="off"'
    ' autocapitalize="off" spellcheck="false" aria-label="Search ranks, nodes, groups and states" aria-keyshortcuts="/"'
    ' aria-controls="found"><kbd aria-hidden="true">/</kbd></search><p id="hits" role="status" class="unseen"></p>'
    '<p id="connection" role="status" class="quiet"></p><p id="news" role="alert" class="unseen"></p>'
)


@cache
def read_asset(name: str) -> str:
    """Return a style sheet, script or icon of this package."""
    return resources.files("hangwatch.outputs.html").joinpath("assets", name).read_text(encoding="utf-8")


def render_file(title: str, body: Markup) -> Markup:
    """Return a self-contained document that may neither load nor run anything."""
    style = read_asset("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    head = Markup(
        '<meta http-equiv="Content-Security-Policy" content="{}"><link rel="icon" href="data:,"><style>{}</style>'
    ).format(policy, Markup(style))  # noqa: S704  # a file of this package
    return _document(title, head, _header(NOTHING, NOTHING), body)


def render_page(title: str, body: Markup, *, root: str = "", live: bool = False, signed_in: bool = True) -> Markup:
    """Return a page of the agent. All URLs are relative, so that it works under any path of a reverse proxy.

    ``root``: relative path to the agent's root; ``live``: the script keeps the page up to date.
    """
    script = Markup('<script src="{}static/page.js" defer></script>').format(root)
    head = Markup(
        '<link rel="icon" href="{0}static/icon.svg"><link rel="stylesheet" href="{0}static/style.css">{1}'
    ).format(root, script if signed_in else NOTHING)
    home = Markup(' href="{}"').format(root or "./")
    return _document(title, head, _header(home, _LIVE.format(MAX_QUERY) if live else NOTHING), body, live=live)


def _header(home: Markup, status: Markup) -> Markup:
    name = Markup("<a{}>hangwatch</a>").format(home) if home else Markup("hangwatch")
    return Markup('<header><p class="name">{}</p>{}</header>').format(name, status)


def _document(title: str, head: Markup, header: Markup, body: Markup, *, live: bool = False) -> Markup:
    return Markup(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="same-origin">{head}</head><body{live}><a class="skip" href="#main">Skip to content</a>'
        "{header}<main id=main tabindex=-1>{body}</main><footer>hangwatch {version}</footer></body></html>\n"
    ).format(
        title=plain(title), head=head, header=header, body=body, version=__version__,
        live=Markup(' data-events="events"') if live else NOTHING,
    )  # fmt: skip
