"""What is known of a cause before any case: its page, docs/causes/ID.md, of which the incident quotes title and remedy.

The pages lie in ``docs/causes`` and are package data as ``hangwatch.causes.pages`` (in the repository a symbolic link). A
page is read when a cause is first reported, never at import, and no rule depends on it. Pure but for that reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

#: The sections of a page, in their order.
SECTIONS = ("Symptom", "Mechanism", "Evidence", "Remedy", "Links")

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HEADING = re.compile(r"# (?P<id>[a-z0-9]+(?:-[a-z0-9]+)*): (?P<title>\S.*)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) +(?P<text>.*)")
_LINK = re.compile(r"\[[^\]]+\]\((?P<url>https?://[^\s)]+)\)")
_FENCE = "```"


class PageError(ValueError):
    """A page that is missing, or does not have the form of a cause's page. The message says which, and where."""


@dataclass(frozen=True)
class Page:
    """A cause's page. ``sections``: Markdown by heading; ``remedy``: a string an item; ``references``: the links' addresses."""

    id: str
    title: str
    sections: Mapping[str, str]
    remedy: tuple[str, ...]
    references: tuple[str, ...]


@dataclass(frozen=True)
class Knowledge:
    """A cause by its id, which is the contract. The rest is on its page; see ``known``."""

    id: str

    @property
    def page(self) -> Page:
        """Raises ``PageError`` where there is no page, or none of the right form."""
        return read_page(self.id)

    @property
    def title(self) -> str:
        """What happened, as said of the rank to blame."""
        return self.page.title

    @property
    def remedy(self) -> tuple[str, ...]:
        """What to do, in the order in which to try it."""
        return self.page.remedy

    @property
    def references(self) -> tuple[str, ...]:
        """Where to read on."""
        return self.page.references


@cache
def known(cause: str) -> Knowledge:
    """What is known of the cause with this id. Its page is not read before it is needed."""
    return Knowledge(cause)


@cache
def read_page(cause: str) -> Page:
    """The page of a cause. Raises ``PageError``."""
    return parse_page(read_text(cause), cause)


def read_text(cause: str) -> str:
    """The Markdown of a cause's page. Raises ``PageError``."""
    from importlib import resources  # takes longer to import than all pages to read

    try:
        if _ID.fullmatch(cause) is None:
            raise FileNotFoundError
        return resources.files(__package__).joinpath("pages", f"{cause}.md").read_text("utf-8")
    except FileNotFoundError:
        raise PageError(f"no page for the cause {cause}: docs/causes/{cause}.md is missing") from None


def list_pages() -> tuple[str, ...]:
    """The ids of all causes that have a page, in alphabetical order."""
    from importlib import resources  # see above

    names = (one.name for one in resources.files(__package__).joinpath("pages").iterdir())
    return tuple(sorted(stem for name in names if _ID.fullmatch(stem := name.removesuffix(".md"))))


def parse_page(text: str, cause: str) -> Page:
    """Take a page apart: ``# ID: title``, then the sections; the remedy and the links are lists. Raises ``PageError``."""

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
    """The sections under their second-level headings. A line of code that begins with ``##`` is none."""
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
    """The items of a list, each on one line. What stands before the first item belongs to none."""
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
