"""The front of progress per group, live: how far it is, who is behind, and the last minutes as a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from markupsafe import Markup

from hangwatch.model.progress import GroupFront
from hangwatch.outputs.html.elements import NOTHING, code, duration, fold, join, number_ranks, plain, short_ranks
from hangwatch.outputs.html.tables import table

#: Groups drawn; the others are in a table: a job of thousands of ranks has hundreds of groups.
_MAX_CHARTS = 12
_MAX_ROWS = 200
_WIDTH, _HEIGHT = 600, 96
#: Longer than an ordinary step of an ordinary job; only said, never judged by.
_LONG_S = 5.0


_KEY = Markup(
    '<p class="key quiet">Sequence numbers over time: <i class="swatch front-line"></i> the first rank, '
    '<i class="swatch slowest-line"></i> the last, <i class="swatch gap"></i> what lies between.</p>'
)


class FrontPoint(msgspec.Struct, frozen=True):
    """Where a group was at a moment: the fastest member's sequence number and the slowest's."""

    at_s: float
    front: int
    slowest: int


def render_fronts(groups: Sequence[GroupFront], history: Mapping[str, Sequence[FrontPoint]]) -> Markup:
    """All groups of a job. ``history`` is by label, oldest point first."""
    if not groups:
        return Markup('<p class="quiet">no process group seen: none exists yet, or the probe is not loaded</p>')
    charts = join(_card(group, history.get(group.label, ())) for group in groups[:_MAX_CHARTS])
    rest = groups[_MAX_CHARTS:]
    rows = [
        (code(g.label), str(g.front), str(g.completed), _in_flight(g), short_ranks(g.behind) if g.behind else "")
        for g in rest[:_MAX_ROWS]
    ]
    heads = ("Group", "Front", "Completed by all", "In flight", "Ranks behind")
    more = fold(f"{len(rest)} more groups", table(heads, rows), id="more-groups")
    return _KEY + Markup('<div class="fronts">{}</div>{}').format(charts, more)


def _card(group: GroupFront, points: Sequence[FrontPoint]) -> Markup:
    late = group.in_flight_s is not None and group.in_flight_s >= _LONG_S
    behind = (
        Markup('<p class="behind">{} behind, the last by {}</p>').format(
            number_ranks(group.behind), group.front - group.slowest
        )
        if group.behind
        else NOTHING
    )
    return Markup(
        '<article class="front{late}"><h3>{label} <span class="quiet">{count}</span></h3>{chart}'
        "<p><b>{front}</b> enqueued, <b>{completed}</b> completed by all{flight}</p>{behind}</article>"
    ).format(
        late=" late" if late else "",
        label=code(group.label),
        count=f"{len(group.ranks)} ranks" if len(group.ranks) != 1 else "1 rank",
        chart=_chart(group.label, points),
        front=group.front,
        completed=group.completed,
        flight=Markup(', in flight for <b class="flight">{}</b>').format(duration(group.in_flight_s))
        if group.in_flight_s is not None
        else NOTHING,
        behind=behind,
    )


def _in_flight(group: GroupFront) -> str:
    return duration(group.in_flight_s) if group.in_flight_s is not None else ""


def _chart(label: str, points: Sequence[FrontPoint]) -> Markup:
    if len(points) < 2:
        return Markup('<p class="chart quiet">the line begins with the next seconds</p>')
    first, last = points[0], points[-1]
    span_s = max(last.at_s - first.at_s, 1e-9)
    low, high = min(point.slowest for point in points), max(point.front for point in points)

    def line(values: Iterable[tuple[float, int]]) -> str:
        return " ".join(
            f"{(at_s - first.at_s) / span_s * _WIDTH:.1f},"
            f"{_HEIGHT - 3 - (value - low) / max(high - low, 1) * (_HEIGHT - 6):.1f}"
            for at_s, value in values
        )

    front = line((point.at_s, point.front) for point in points)
    slowest = line((point.at_s, point.slowest) for point in points)
    back = line((point.at_s, point.slowest) for point in reversed(points))
    rate = (last.front - first.front) / span_s
    said = f"{label}: from {first.front} to {last.front} in {duration(span_s)}, {rate:.2g} operations a second"
    drawing = Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none"><title>{}</title>'
        '<polygon points="{} {}"/><polyline class="slowest" points="{}"/><polyline points="{}"/></svg>'
    ).format(plain(said, 400), _WIDTH, _HEIGHT, plain(said, 400), front, back, slowest, front)
    # Words stand beside the drawing: in it they would be stretched with it.
    return Markup(
        '<div class="plot"><p class="values quiet" aria-hidden="true"><span>{}</span><span>{}</span></p>{}'
        '<p class="times quiet" aria-hidden="true"><span>{} ago</span><span>now</span></p></div>'
    ).format(high, low, drawing, duration(span_s))
