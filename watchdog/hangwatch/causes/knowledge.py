"""What is known of a cause before any case: its page, docs/causes/ID.md, from which the incident quotes title and remedy.

The pages lie in ``docs/causes`` and are package data as ``hangwatch.causes.pages`` (in the repository a symbolic link). A
page is read when a cause is first reported, never at import, and no rule depends on it. Pure but for that reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from hangwatch.model.incident import How

#: The sections of a page, in their order.
SECTIONS = ("Symptom", "Mechanism", "Evidence", "Remedy", "Links")

#: The ids of causes that were merged -> the cause that they are now. Drop this with the release after the next.
FORMER = dict.fromkeys(("rank-conditional-collective", "skipped-collective", "uneven-inputs"), "ranks-diverged")

#: The titles of diverged ranks by what parted them, in words that follow "because of rank 3: ".
_TITLES: Mapping[How, str] = {
    "condition": "A collective is called under a condition that differs between ranks",
    "guard": "A collective was skipped on some ranks",
    "loop": "Some ranks left a loop that others are still in",
    "exception": "A caught exception skipped a collective",
}

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HEADING = re.compile(r"# (?P<id>[a-z0-9]+(?:-[a-z0-9]+)*): (?P<title>\S.*)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) +(?P<text>.*)")
_LINK = re.compile(r"\[[^\]]+\]\((?P<url>https?://[^\s)]+)\)")
_FENCE = "```"


class PageError(ValueError):
    """A page that is missing, or does not have the form of a cause's page. The message says which, and where."""


@dataclass(frozen=True)
class Page:
    """A cause's page.

    ``sections``: Markdown by heading; ``remedy``: one string an item; ``references``: addresses of the links.
    """

    id: str
    title: str
    sections: Mapping[str, str]
    remedy: tuple[str, ...]
    references: tuple[str, ...]

    def title_of(self, how: How | None) -> str:
        """Return what happened. ``how``: what parted the ranks; None if not known."""
        return _TITLES[how] if how is not None else self.title

    def remedy_of(self, how: How | None) -> tuple[str, ...]:
        """Return what to do, in the order to try it: first the items for ``how`` the ranks parted (``Loop: ..``)."""
        prefix = f"{how}: ".capitalize()
        first = [text for text in self.remedy if text.startswith(prefix)]
        own = [text.removeprefix(prefix) for text in first]
        return (*(text[:1].upper() + text[1:] for text in own), *(text for text in self.remedy if text not in first))


@cache
def read_page(cause: str) -> Page:
    """Return the page of a cause, which may be given by a former id. Raise ``PageError``."""
    cause = FORMER.get(cause, cause)
    return parse_page(read_text(cause), cause)


def read_text(cause: str) -> str:
    """Return the Markdown of a cause's page. Raise ``PageError`` if it is missing."""
    from importlib import resources  # slower to import than to read all pages

    try:
        if _ID.fullmatch(cause) is None:
            raise FileNotFoundError
        return resources.files(__package__).joinpath("pages", f"{cause}.md").read_text("utf-8")
    except FileNotFoundError:
        raise PageError(f"no page for the cause {cause}: docs/causes/{cause}.md is missing") from None


def list_pages() -> tuple[str, ...]:
    """Return the ids of all causes that have a page, in alphabetical order."""
    from importlib import resources  # slow to import

    names = (one.name for one in resources.files(__package__).joinpath("pages").iterdir())
    return tuple(sorted(stem for name in names if _ID.fullmatch(stem := name.removesuffix(".md"))))


def parse_page(text: str, cause: str) -> Page:
    """Return a page, parsed: ``# ID: title``, then the sections; the remedy and the links are lists.

    Raise ``PageError``.
    """

    def wrong(what: str) -> PageError:
        return PageError(f"docs/causes/{cause}.md: {what}")

    first, _, body = text.partition("\n")
    heading = _HEADING.fullmatch(first.strip())
    if heading is None or heading["id"] != cause:
        raise wrong(f"the first line has to be '# {cause}: what happened', and is {first.strip()!r}")
    parts = list(_sections(body))
    names = tuple(name for name, _ in parts)
    if names != SECTIONS:
        raise wrong(f"its sections have to be {', '.join(SECTIONS)}, and are {', '.join(names) or 'none'}")
    sections = dict(parts)
    empty = [name for name in SECTIONS if not sections[name]]
    if empty:
        raise wrong(f"nothing is said under {', '.join(empty)}")
    if _FENCE in sections["Remedy"]:
        raise wrong(
            "the remedy is quoted line by line in incidents, and cannot hold a block of code: show it under Mechanism"
        )
    remedy = tuple(_items(sections["Remedy"]))
    if not remedy:
        raise wrong("the remedy has to be a list")
    references = tuple(m["url"] for item in _items(sections["Links"]) for m in _LINK.finditer(item))
    if not references:
        raise wrong("the links have to be a list of [what](address)")
    return Page(cause, heading["title"].strip(), sections, remedy, references)


def _sections(body: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each section under a second-level heading. ``##`` in a block of code is no heading."""
    name: str | None = None
    lines: list[str] = []
    code = False
    for line in body.splitlines():
        code ^= line.lstrip().startswith(_FENCE)
        if line.startswith("## ") and not code:
            if name is not None:
                yield name, "\n".join(lines).strip()
            name, lines = line[3:].strip(), []
        else:
            lines.append(line)
    if name is not None:
        yield name, "\n".join(lines).strip()


def _items(text: str) -> Iterator[str]:
    """Yield the items of a list, each on one line. What comes before the first item belongs to none."""
    item: list[str] = []
    for line in text.splitlines():
        begins = _ITEM.match(line)
        if begins is not None:
            if item:
                yield " ".join(item)
            item = [begins["text"].strip()]
        elif item and line.strip():
            item.append(line.strip())
    if item:
        yield " ".join(item)
