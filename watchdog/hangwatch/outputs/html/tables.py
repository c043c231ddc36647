"""Tables of an incident's ranks; ranks at the same place share a row, so that thousands of ranks need a few rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from markupsafe import Markup

from hangwatch.model.incident import Incident, RankEntry
from hangwatch.model.text import short_ranks
from hangwatch.outputs.html.cells import css_state
from hangwatch.outputs.html.elements import NOTHING, code, fold, join, section, tell_hidden, text
from hangwatch.outputs.wording import group_places

_MAX_ROWS = 60
_MAX_PROCESSES = 512


def table(heads: Sequence[str], rows: Iterable[Sequence[str | Markup]], css: str = "") -> Markup:
    """Return a table that scrolls if it is too wide; empty markup without rows."""
    body = join(Markup("<tr>{}</tr>").format(join(Markup("<td>{}</td>").format(cell) for cell in row)) for row in rows)
    if not body:
        return NOTHING
    head = join(Markup('<th scope="col">{}</th>').format(name) for name in heads)
    # Scrolling regions must be reachable by keyboard.
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table class="{}"><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    ).format(", ".join(heads), css, head, body)


def render_groups(incident: Incident) -> Markup:
    """Return sequence numbers by group, the ranks that are furthest behind first."""
    found: dict[str, dict[tuple[int, int], list[int]]] = {}
    for entry in incident.ranks:
        for group in entry.groups:
            found.setdefault(group.name, {}).setdefault((group.enqueued, group.completed), []).append(entry.rank)
    rows = [
        (
            code(name) if place == 0 else NOTHING,
            _number(enqueued),
            _number(completed),
            "in flight" if enqueued > max(completed, 0) else "",
            short_ranks(ranks),
        )
        for name, numbers in found.items()
        for place, ((enqueued, completed), ranks) in enumerate(sorted(numbers.items()))
    ]
    shown = table(("Group", "Enqueued", "Completed", "State", "Ranks"), rows[:_MAX_ROWS], css="groups cards")
    return section("Groups", shown + tell_hidden(len(rows) - _MAX_ROWS), id="groups")


def _number(value: int) -> Markup:
    return Markup('<span class="number">{}</span>').format(max(value, 0))


def render_places(incident: Incident) -> Markup:
    """Return the ranks by state and top frame."""
    rows = [
        (
            short_ranks(place.ranks),
            _state(place.state),
            code(place.top) if place.top else Markup('<span class="quiet">no Python frames</span>'),
        )
        for place in group_places(incident.ranks)
    ]
    shown = table(("Ranks", "State", "Top frame"), rows[:_MAX_ROWS], css="places cards")
    return shown + tell_hidden(len(rows) - _MAX_ROWS) + _processes(incident.ranks)


def _state(state: str) -> Markup:
    return Markup('<i class="swatch {}"></i> {}').format(css_state(state), text(state, 24))


def _processes(ranks: Collection[RankEntry]) -> Markup:
    rows = [
        (str(entry.rank), text(entry.node, 100), str(entry.pid), _state(entry.state))
        for entry in sorted(ranks, key=lambda entry: entry.rank)[:_MAX_PROCESSES]
    ]
    content = table(("Rank", "Node", "Pid", "State"), rows) + tell_hidden(len(ranks) - _MAX_PROCESSES)
    return fold("Processes", content, id="processes")
