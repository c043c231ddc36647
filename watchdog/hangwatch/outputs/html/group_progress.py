"""Progress per process group, live: sequence numbers, ranks behind, and a chart of the last minutes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from markupsafe import Markup

from hangwatch.model.live import LastToJoin
from hangwatch.model.progress import GroupFront
from hangwatch.model.text import number_ranks, short_ranks
from hangwatch.outputs.html.elements import NOTHING, code, fold, join, plain
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.wording import duration

#: Groups with a chart; the others are rows of a table: a job of thousands of ranks has hundreds of groups.
_MAX_CHARTS = 12
_MAX_ROWS = 200
_WIDTH, _HEIGHT, _STRIP = 600, 96, 40


_KEY = Markup(
    '<p class="key quiet">Sequence numbers over time: <i class="swatch fastest-line"></i> fastest rank, '
    '<i class="swatch slowest-line"></i> slowest rank, <i class="swatch gap"></i> the gap between them.</p>'
)


class ProgressPoint(msgspec.Struct, frozen=True):
    """The sequence numbers of a group's fastest and slowest member at one moment."""

    at_s: float
    fastest: int
    slowest: int


class JobPace(msgspec.Struct, frozen=True):
    """How fast a job progresses.

    ``per_s``: collectives per second, the mean of all ranks over the last minute; None before two observations.
    ``still_s``: seconds since any rank has moved.
    """

    per_s: float | None = None
    still_s: float = 0.0


class JobProgress(msgspec.Struct, frozen=True):
    """The last minutes of a job: the points of its groups by label, oldest first, and its pace."""

    groups: Mapping[str, Sequence[ProgressPoint]] = {}
    pace: JobPace = JobPace()


def render_group_progress(
    groups: Sequence[GroupFront],
    history: Mapping[str, Sequence[ProgressPoint]],
    last: Mapping[Hashable, LastToJoin] = MappingProxyType({}),
) -> Markup:
    """Return the progress of all groups of a job, in their order.

    ``history``: points by label, oldest first; ``last``: by the groups' keys.
    """
    if not groups:
        return Markup('<p class="quiet">No process groups found: none exists yet, or the probe is not loaded.</p>')
    # If there are many groups and some wait, draw charts for those alone. They come first.
    late = sum(group.long_wait_s > 0 for group in groups) if len(groups) > _MAX_CHARTS else 0
    charted = groups[: min(late or _MAX_CHARTS, _MAX_CHARTS)]
    charts = join(_card(group, history.get(group.label, ()), last.get(group.key)) for group in charted)
    rest = groups[len(charted) :]
    more = fold(f"{len(rest)} more groups", list_groups(rest), id="more-groups")
    return _KEY + Markup('<div class="group-cards">{}</div>{}').format(charts, more)


def list_groups(groups: Sequence[GroupFront]) -> Markup:
    """Return a row per group; empty markup without groups."""
    rows = [
        (code(g.label), str(g.front), str(g.completed), _in_flight(g), short_ranks(g.behind) if g.behind else "")
        for g in groups[:_MAX_ROWS]
    ]
    shown = table(("Group", "Enqueued", "Completed by all", "In flight", "Ranks behind"), rows, css="fronts cards")
    hidden = len(groups) - _MAX_ROWS
    more = Markup('<p class="quiet">and {} more: search for a name or a rank</p>').format(hidden)
    return shown + (more if hidden > 0 else NOTHING)


def _card(group: GroupFront, points: Sequence[ProgressPoint], last: LastToJoin | None) -> Markup:
    behind = (
        Markup('<p class="behind">{} behind, by up to {}</p>').format(
            number_ranks(group.behind), group.front - group.slowest
        )
        if group.behind
        else NOTHING
    )
    return Markup(
        '<article class="group-card{late}"><h3>{label} <span class="quiet">{count}</span></h3>{chart}'
        "<p><b>{enqueued}</b> enqueued, <b>{completed}</b> completed by all{flight}</p>{behind}{last}</article>"
    ).format(
        late=" late" if group.long_wait_s else "",
        label=code(group.label),
        count=f"{len(group.ranks)} ranks" if len(group.ranks) != 1 else "1 rank",
        chart=_chart(group.label, points),
        enqueued=group.front,
        completed=group.completed,
        flight=Markup(', in flight for <b class="flight">{}</b>').format(duration(group.in_flight_s))
        if group.in_flight_s is not None
        else NOTHING,
        behind=behind,
        last=_arrivals(last) if last is not None else NOTHING,
    )


def _arrivals(last: LastToJoin) -> Markup:
    """Return who joined the operations last, in words and as a bar for each part of the time."""
    highest = max(one.late_ns for one in last.slices) or 1
    span_ns = last.ended_ns - last.began_ns
    bar = Markup('<rect{} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>rank {}, {}</title></rect>')
    bars = join(
        bar.format(
            Markup(' class="most"') if one.rank == last.rank else NOTHING,
            (one.began_ns - last.began_ns) / span_ns * _WIDTH,
            _STRIP - (high := max(1.0, one.late_ns / highest * _STRIP)),
            max(1.0, (one.ended_ns - one.began_ns) / span_ns * _WIDTH - 1),
            high,
            one.rank,
            _late(one.late_ns),
        )
        for one in last.slices
    )
    said = (
        f"Last to join: rank {last.rank} in {last.times / last.operations:.0%} of {last.operations} operations, "
        f"by {_late(last.late_ns)}"
    )
    return Markup(
        '<p class="last">{said}</p><div class="plot arrivals">'
        '<p class="values quiet" aria-hidden="true"><span>{highest}</span><span>0</span></p>'
        '<svg class="chart" role="img" aria-label="{said}" viewBox="0 0 {} {}" preserveAspectRatio="none">{bars}</svg>'
        '<p class="times quiet" aria-hidden="true"><span>the last {span}</span>'
        '<span><i class="swatch most"></i> rank {rank} <i class="swatch"></i> another rank</span></p></div>'
    ).format(_WIDTH, _STRIP, said=said, highest=_late(highest), bars=bars, span=duration(span_ns / 1e9), rank=last.rank)


def _late(late_ns: int) -> str:
    return f"{late_ns / 1e6:.3g} ms" if late_ns < 1e9 else f"{late_ns / 1e9:.3g} s"


def _in_flight(group: GroupFront) -> str:
    return duration(group.in_flight_s) if group.in_flight_s is not None else ""


def _chart(label: str, points: Sequence[ProgressPoint]) -> Markup:
    if len(points) < 2:
        return Markup('<p class="chart quiet">The chart starts in a few seconds.</p>')
    first, last = points[0], points[-1]
    span_s = max(last.at_s - first.at_s, 1e-9)
    low, high = min(point.slowest for point in points), max(point.fastest for point in points)

    def line(values: Iterable[tuple[float, int]]) -> str:
        return " ".join(
            f"{(at_s - first.at_s) / span_s * _WIDTH:.1f},"
            f"{_HEIGHT - 3 - (value - low) / max(high - low, 1) * (_HEIGHT - 6):.1f}"
            for at_s, value in values
        )

    fastest = line((point.at_s, point.fastest) for point in points)
    slowest = line((point.at_s, point.slowest) for point in points)
    back = line((point.at_s, point.slowest) for point in reversed(points))
    rate = (last.fastest - first.fastest) / span_s
    said = f"{label}: from {first.fastest} to {last.fastest} in {duration(span_s)}, {rate:.2g} operations per second"
    drawing = Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none"><title>{}</title>'
        '<polygon points="{} {}"/><polyline class="slowest" points="{}"/><polyline points="{}"/></svg>'
    ).format(plain(said, 400), _WIDTH, _HEIGHT, plain(said, 400), fastest, back, slowest, fastest)
    # Labels are outside the drawing, which is stretched to the width of the page.
    return Markup(
        '<div class="plot"><p class="values quiet" aria-hidden="true"><span>{}</span><span>{}</span></p>{}'
        '<p class="times quiet" aria-hidden="true"><span>{} ago</span><span>now</span></p></div>'
    ).format(high, low, drawing, duration(span_s))
