"""Basic building blocks: untrusted text, code, lists, sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from markupsafe import Markup, escape

from hangwatch.model.incident import SourceLine
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import short_place
from hangwatch.outputs.sanitize import MAX_CHARACTERS, clean, excerpt

NOTHING = Markup("")


def text(foreign: str, limit: int = MAX_CHARACTERS) -> Markup:
    """Return untrusted text on one line, without control characters, bidirectional reordering or markup."""
    return Markup("<bdi>{}</bdi>").format(excerpt(foreign, limit))


def plain(foreign: str, limit: int = 200) -> Markup:
    """Return untrusted text for attributes and titles, which cannot contain elements."""
    return escape(excerpt(foreign, limit))


def code(foreign: str) -> Markup:
    """Return untrusted text in a fixed-width font."""
    return Markup("<code>{}</code>").format(text(foreign))


def prose(foreign: str) -> Markup:
    """Return untrusted text; words between backticks become code, as on the cause pages."""
    parts = excerpt(foreign).split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick: all of them are taken literally
        return text(foreign)
    pieces = (Markup("<code>{}</code>").format(part) if odd % 2 else escape(part) for odd, part in enumerate(parts))
    return Markup("<bdi>{}</bdi>").format(join(pieces))


def join(parts: Iterable[Markup], between: str = "") -> Markup:
    """Return the parts concatenated."""
    return escape(between).join(parts)


def with_names(html: Markup, names: Mapping[int, str]) -> Markup:
    """Return the markup with processes of other worlds replaced by their names."""
    escaped = {number: plain(name) for number, name in names.items()}
    return Markup(name_guests(html, escaped)) if names else html  # noqa: S704  # both are markup


def tell_hidden(count: int) -> Markup:
    """Return that there are so many more than are shown; nothing if there are none."""
    return Markup('<p class="quiet">and {} more in incident.json</p>').format(count) if count > 0 else NOTHING


def place(file: str, line: int) -> Markup:
    """Return ``dir/file.py:12`` with the full path as tooltip; it may be wrapped after each slash."""
    shown = excerpt(short_place(file, line))
    broken = Markup("/<wbr>").join(escape(part) for part in shown.split("/"))
    whole = f"{file}:{line}" if line else file
    return Markup('<bdi class="place" title="{}">{}</bdi>').format(plain(whole, MAX_CHARACTERS), broken)


def short_command(command: str) -> str:
    """Return a command as the user typed it: without interpreter, if the program is installed, and without its folders."""
    words = command.split(" ")
    if len(words) > 1 and PurePosixPath(words[0]).name.startswith("python") and "/bin/" in words[1]:
        del words[0]
    return " ".join((PurePosixPath(words[0]).name or words[0], *words[1:]))


def source_line(line: SourceLine) -> Markup:
    """Return a source line: place, function, text, and the library line it went through."""
    source = Markup('<pre class="line"><code>{}</code></pre>').format(text(line.source)) if line.source else NOTHING
    via = Markup('<p class="via"><span class="quiet">via</span> {}</p>').format(code(line.via)) if line.via else NOTHING
    where = Markup('<p class="where">{} <span class="quiet">in</span> {}</p>')
    return where.format(place(line.file, line.line), code(line.function)) + source + via


def listing(items: Iterable[Markup], kind: str = "ul", css: str = "") -> Markup:
    """Return a list; empty markup if there are no items."""
    entries = join(Markup("<li>{}</li>").format(item) for item in items)
    if not entries:
        return NOTHING
    opening = Markup('<{} class="{}">').format(kind, css) if css else Markup("<{}>").format(kind)
    return opening + entries + Markup("</{}>").format(kind)


def fact_list(facts: Iterable[tuple[str, str | Markup]]) -> Markup:
    """Return names and values side by side, without the empty ones."""
    entry = Markup("<div><dt>{}</dt><dd>{}</dd></div>")
    return Markup('<dl class="facts">{}</dl>').format(join(entry.format(name, value) for name, value in facts if value))


def section(title: str | Markup, content: Markup, *, id: str = "", css: str = "") -> Markup:
    """Return a section with heading; empty markup if there is no content."""
    if not content:
        return NOTHING
    name = Markup(' id="{}"').format(id) if id else NOTHING
    style = Markup(' class="{}"').format(css) if css else NOTHING
    return Markup("<section{}{}><h2>{}</h2>{}</section>").format(name, style, title, content)


def fold(summary: str | Markup, content: Markup, *, id: str = "", opened: bool = False) -> Markup:
    """Return a collapsible part (``<details>``), which needs no script."""
    if not content:
        return NOTHING
    name = Markup(' id="{}"').format(id) if id else NOTHING
    state = Markup(" open") if opened else NOTHING
    return Markup("<details{}{}><summary>{}</summary>{}</details>").format(name, state, summary, content)


def link(address: str) -> Markup:
    """Return a link if ``address`` is an http(s) URL, else plain text, because a bundle is untrusted.

    It wraps as in ``place``.
    """
    shown = clean(address)
    if not shown.startswith(("https://", "http://")):
        return text(address)
    label = excerpt(shown.partition("://")[2])
    broken = Markup("/<wbr>").join(escape(part) for part in label.split("/"))
    return Markup('<a href="{}" rel="noreferrer noopener"><bdi>{}</bdi></a>').format(shown, broken)


def small_id(id: str, title: str) -> Markup:
    """Return the id of a job in small type; empty if it is also the job's title."""
    return Markup(' <span class="id quiet">{}</span>').format(text(id, 80)) if id != title else NOTHING


def copy_link(address: str) -> Markup:
    """Return a link to a Markdown text. The page's script copies the text; without the script the link opens it."""
    return Markup('<a class="button" href="{}" data-copy>Copy as issue</a><span role="status"></span> ').format(address)


def moment(rfc3339: str, *, whole_seconds: bool = False) -> Markup:
    """Return a time of the document (RFC 3339, UTC) for display."""
    shown = excerpt(rfc3339, 40).replace("T", " ").removesuffix("Z")
    shown = shown.partition(".")[0] if whole_seconds else shown
    return Markup('<time datetime="{}">{} UTC</time>').format(plain(rfc3339, 40), shown)
