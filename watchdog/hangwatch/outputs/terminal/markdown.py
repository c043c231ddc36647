"""A page of Markdown for a terminal: headings, paragraphs, lists, tables and code, as the pages of causes have them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from hangwatch.outputs.terminal.console import Line, Span
from hangwatch.outputs.terminal.layout import paragraph, say

_INDENT = 2
_EMPTY: Line = ()


def render_page(text: str, width: int) -> Iterator[Line]:
    """Yield the lines of a page, its paragraphs wrapped to ``width``; lines of code stay as they are."""
    depth, mark, style = 0, "", ""
    cells: list[str] | None = None
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        kind = token.type
        if kind == "heading_open":
            style = "bold"
        elif kind.endswith("_list_open"):
            depth += 1
        elif kind.endswith("_list_close"):
            depth -= 1
        elif kind == "list_item_open":
            mark = f"{token.info}{token.markup} "
        elif kind == "tr_open":
            cells = []
        elif kind == "tr_close":
            yield from paragraph(" | ".join(cells or ()), width)
            cells = None
        elif kind == "inline" and cells is not None:
            cells.append(_plain(token))
        elif kind == "inline":
            yield from paragraph(_plain(token), width, indent=_INDENT * depth, mark=Span(mark), style=style)
            mark, style = "", ""
        elif kind in {"fence", "code_block"}:
            yield from ((Span(" " * 2 * _INDENT), *say(line, "cyan")) for line in token.content.splitlines())
        if token.level == 0 and token.nesting <= 0:
            yield _EMPTY


def _plain(inline: Token) -> str:
    """Return the text of a paragraph; the address of a link to the web follows its text."""
    parts, url = [], ""
    for token in inline.children or ():
        if token.type == "link_open":
            url = str(token.attrs.get("href", ""))
        elif token.type == "link_close":
            parts.append(f": {url}" if "://" in url else "")
        else:
            parts.append(token.content or " " * token.type.endswith("break"))
    return "".join(parts)
