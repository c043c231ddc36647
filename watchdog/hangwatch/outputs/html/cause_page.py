"""The page of a cause, ``docs/causes/ID.md``, as HTML: on a page of the agent's, or folded into a report.

May import the causes' pages and markdown-it, which makes HTML of CommonMark.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from hangwatch.causes.knowledge import FORMER, Page, PageError, list_pages, read_page
from hangwatch.outputs.html.elements import NOTHING, code, fold, join, section

if TYPE_CHECKING:
    from markdown_it.token import Token

#: Rendered pages that are kept: about as many as there are causes; anybody may ask for one that does not exist.
_PAGES = 64
#: Sections that a report does not contain already, as it does remedy and links.
_FOLDED = ("Symptom", "Mechanism", "Evidence")


def name_cause(cause: str, root: str | None) -> Markup:
    """Return the id of a cause as a link to its page if the agent has one.

    ``root``: the relative path to the agent's root; None in a file.
    """
    if root is None or cause not in _known():
        return code(cause)
    return Markup('<a href="{}causes/{}">{}</a>').format(root, cause, code(cause))


@lru_cache(_PAGES)
def render_cause_page(cause: str) -> Markup | None:
    """Return the whole page of a cause; None if there is none."""
    page = _find(cause)
    if page is None:
        return None
    heading = Markup('<h1>{} <span class="id quiet">{}</span></h1>').format(page.title, cause)
    return heading + join(section(name, _html(page, name, linked=True), css="prose") for name in page.sections)


@lru_cache(_PAGES)
def fold_page(cause: str) -> Markup:
    """Return the page without remedy and links, folded; empty markup if there is no page."""
    page = _find(cause)
    if page is None:
        return NOTHING
    parts = (Markup("<h3>{}</h3>{}").format(name, _html(page, name, linked=False)) for name in _FOLDED)
    return fold("About this cause", Markup('<div class="prose">{}</div>').format(join(parts)), id="about-cause")


@cache
def _known() -> frozenset[str]:
    return frozenset((*list_pages(), *FORMER))


def _find(cause: str) -> Page | None:
    try:
        return read_page(cause) if cause in _known() else None
    except PageError:
        return None


def _html(page: Page, name: str, *, linked: bool) -> Markup:
    """Return one section. ``linked``: the pages of other causes are beside this one."""
    from markdown_it import MarkdownIt  # an agent that finds nothing needs no Markdown

    parser = MarkdownIt("commonmark", {"html": False})
    tokens = parser.parse(page.sections[name])
    for token in tokens:
        _set_links(token.children or (), linked=linked)
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704  # a page of this package


def _set_links(tokens: Iterable[Token], *, linked: bool) -> None:
    """Keep links to the web and to other causes' pages; unlink other files of the repository, which are not here."""
    tag = "a"
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrGet("href"))
            cause = address.removesuffix(".md")
            tag = "a"
            if address.startswith("https://"):
                token.attrSet("rel", "noreferrer noopener")
            elif linked and cause in _known():
                token.attrSet("href", cause)
            else:
                tag, token.attrs = "span", {}
        if token.type in {"link_open", "link_close"}:
            token.tag = tag
