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
    """Untrusted text on one line: no control characters, no bidirectional reordering of its neighbours, no markup."""
    return Markup("<bdi>{}</bdi>").format(excerpt(foreign, limit))


def plain(foreign: str, limit: int = 200) -> Markup:
    """The same for attributes and titles, which cannot contain elements."""
    return escape(excerpt(foreign, limit))


def code(foreign: str) -> Markup:
    """Untrusted text in a fixed-width font."""
    return Markup("<code>{}</code>").format(text(foreign))


def prose(foreign: str) -> Markup:
    """Text in which words between backticks are code, as on the cause pages."""
    parts = excerpt(foreign).split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick: all of them are taken literally
        return text(foreign)
    pieces = (Markup("<code>{}</code>").format(part) if odd % 2 else escape(part) for odd, part in enumerate(parts))
    return Markup("<bdi>{}</bdi>").format(join(pieces))


def join(parts: Iterable[Markup], between: str = "") -> Markup:
    """Concatenate the parts."""
    return escape(between).join(parts)


def with_names(html: Markup, names: Mapping[int, str]) -> Markup:
    """The markup with processes of other worlds by their names."""
    escaped = {number: plain(name) for number, name in names.items()}
    return Markup(name_guests(html, escaped)) if names else html  # noqa: S704  # both are markup


def place(file: str, line: int) -> Markup:
    """``dir/file.py:12`` with the full path as tooltip; may be wrapped after each slash."""
    shown = excerpt(short_place(file, line))
    broken = Markup("/<wbr>").join(escape(part) for part in shown.split("/"))
    whole = f"{file}:{line}" if line else file
    return Markup('<bdi class="place" title="{}">{}</bdi>').format(plain(whole, MAX_CHARACTERS), broken)


def short_command(command: str) -> str:
    """A command as it was typed: without the interpreter of an installed program and without the folders of its path."""
    words = command.split(" ")
    if len(words) > 1 and PurePosixPath(words[0]).name.startswith("python") and "/bin/" in words[1]:
        del words[0]
    return " ".join((PurePosixPath(words[0]).name or words[0], *words[1:]))


def source_line(line: SourceLine) -> Markup:
    """A source line: place, function, text, and the library line it was reached through."""
    source = Markup('<pre class="line"><code>{}</code></pre>').format(text(line.source)) if line.source else NOTHING
    via = Markup('<p class="via"><span class="quiet">via</span> {}</p>').format(code(line.via)) if line.via else NOTHING
    where = Markup('<p class="where">{} <span class="quiet">in</span> {}</p>')
    return where.format(place(line.file, line.line), code(line.function)) + source + via


def listing(items: Iterable[Markup], kind: str = "ul", css: str = "") -> Markup:
    """A list; empty markup if there are no items."""
    entries = join(Markup("<li>{}</li>").format(item) for item in items)
    if not entries:
        return NOTHING
    opening = Markup('<{} class="{}">').format(kind, css) if css else Markup("<{}>").format(kind)
    return opening + entries + Markup("</{}>").format(kind)


def section(title: str | Markup, content: Markup, *, id: str = "", css: str = "") -> Markup:
    """A section with heading; empty markup if there is no content."""
    if not content:
        return NOTHING
    name = Markup(' id="{}"').format(id) if id else NOTHING
    style = Markup(' class="{}"').format(css) if css else NOTHING
    return Markup("<section{}{}><h2>{}</h2>{}</section>").format(name, style, title, content)


def fold(summary: str | Markup, content: Markup, *, id: str = "", opened: bool = False) -> Markup:
    """A collapsible part (``<details>``), which needs no script."""
    if not content:
        return NOTHING
    name = Markup(' id="{}"').format(id) if id else NOTHING
    state = Markup(" open") if opened else NOTHING
    return Markup("<details{}{}><summary>{}</summary>{}</details>").format(name, state, summary, content)


def link(address: str) -> Markup:
    """A reference: a link if it is an http(s) URL, plain text otherwise, because a bundle is untrusted. Wraps as ``place``."""
    shown = clean(address)
    if not shown.startswith(("https://", "http://")):
        return text(address)
    label = excerpt(shown.partition("://")[2])
    broken = Markup("/<wbr>").join(escape(part) for part in label.split("/"))
    return Markup('<a href="{}" rel="noreferrer noopener"><bdi>{}</bdi></a>').format(shown, broken)


def moment(rfc3339: str, *, whole_seconds: bool = False) -> Markup:
    """A time of the document (RFC 3339, UTC)."""
    shown = excerpt(rfc3339, 40).replace("T", " ").removesuffix("Z")
    shown = shown.partition(".")[0] if whole_seconds else shown
    return Markup('<time datetime="{}">{} UTC</time>').format(plain(rfc3339, 40), shown)


def duration(seconds: float) -> str:
    """``0.4 s``, ``34 s``, ``5 min 3 s``, ``2 min``, ``2 h 4 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
