"""All ranks at a glance: one cell per rank, coloured by its state, with the same information as text below.

Few ranks are tiles with number and state. Many are squares in one drawing, one path per state: four thousand elements
would slow the browser and be useless to a screen reader. States are also listed as text, so colour is never needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby

from markupsafe import Markup

from hangwatch.model.text import short_ranks
from hangwatch.outputs.html.elements import NOTHING, join, plain, text

#: Up to this many ranks, each is a tile of its own.
_MAX_TILES = 64
#: Squares in a row; both are multiples of a block of 8 (the ranks of a typical node), and blocks are separated by a gap.
_COLUMNS, _COLUMNS_MANY = 64, 128
_BLOCK = 8
#: In units of the drawing: pitch of the squares, side of a square, gap between blocks; margins for the numbers.
_PITCH, _SIDE, _APART = 10, 8, 4
_MARGIN, _TOP = 46, 16

#: What the states mean, most important first; any other state is drawn as unknown.
STATES = {
    "lost": "the process is gone",
    "stopped": "stopped by a signal or a frozen cgroup",
    "stuck": "makes no progress, and is not waiting for another rank",
    "busy": "working outside any collective",
    "waiting": "waiting for other ranks",
    "in_flight": "in a collective",
    "running": "outside any collective",
    "unprobed": "runs without the probe",
    "unknown": "no information",
}


def name_state(state: str) -> str:
    """The display name of a state."""
    return state.replace("_", " ")


def css_state(state: str) -> str:
    """The CSS class of a state."""
    return f"s-{state if state in STATES else 'unknown'}"


def render_cells(states: Mapping[int, str], culprits: Collection[int] = (), world_size: int | None = None) -> Markup:
    """The cells of all ranks, with a ring around the culprits, and the legend. Ranks without information are unknown."""
    known = dict(states)
    for rank in range(world_size or 0):
        known.setdefault(rank, "unknown")
    if not known:
        return Markup('<p class="quiet">No ranks found yet.</p>')
    named = frozenset(culprits)
    drawing = _tiles(known, named) if len(known) <= _MAX_TILES else _squares(known, named)
    return drawing + _legend(known, named)


def _tiles(states: Mapping[int, str], culprits: frozenset[int]) -> Markup:
    tile = Markup('<li class="tile {}{}"><b>{}</b> <span>{}</span>{}</li>')
    mark = Markup('<span class="mark">culprit</span>')
    tiles = (
        tile.format(
            css_state(state),
            " culprit" if rank in culprits else "",
            rank,
            text(name_state(state), 24),
            mark if rank in culprits else NOTHING,
        )
        for rank, state in sorted(states.items())
    )
    return Markup('<ol class="tiles" aria-label="ranks">{}</ol>').format(join(tiles))


def _squares(states: Mapping[int, str], culprits: frozenset[int]) -> Markup:
    columns = _COLUMNS if len(states) <= _COLUMNS * 16 else _COLUMNS_MANY
    ranks = sorted(states)
    rows = -(-len(ranks) // columns)
    cells: dict[str, list[tuple[int, int]]] = {}
    for index, rank in enumerate(ranks):
        cells.setdefault(css_state(states[rank]), []).append(divmod(index, columns))
    paths = (
        Markup('<path class="{}" d="{}"><title>{}</title></path>').format(css, _path(places), _count(css, places))
        for css, places in cells.items()
    )
    rings = (_ring(rank, *divmod(index, columns)) for index, rank in enumerate(ranks) if rank in culprits)
    # Scrolling regions must be reachable by keyboard; thousands of ranks scroll on a phone.
    picture = Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="ranks"><svg class="squares{}" role="img"'
        ' aria-label="{} ranks; the list below gives their states" viewBox="0 0 {} {}">'
    ).format(" many" if columns == _COLUMNS_MANY else "", len(ranks), _x(columns), _TOP + rows * _PITCH + 2)
    return picture + join(_axes(ranks, rows, columns)) + join(paths) + join(rings) + Markup("</svg></div>")


def _axes(ranks: list[int], rows: int, columns: int) -> Iterator[Markup]:
    """Axis labels: the first rank of each row, and the offset of the columns. Their sum is the rank of a square."""
    for row in range(0, rows, 1 if rows <= 8 else 4):
        yield Markup('<text class="row" x="{}" y="{}">{}</text>').format(
            _MARGIN - 6, _y(row) + _SIDE, ranks[row * columns]
        )
    for column in range(0, columns, 16):
        yield Markup('<text x="{}" y="{}">{}</text>').format(_x(column), _TOP - 6, f"+{column}" if column else "rank")


def _x(column: int) -> int:
    return _MARGIN + column * _PITCH + column // _BLOCK * _APART


def _y(row: int) -> int:
    return _TOP + row * _PITCH


def _path(places: Iterable[tuple[int, int]]) -> str:
    return "".join(f"M{_x(column)} {_y(row) + 1}h{_SIDE}v{_SIDE}h-{_SIDE}z" for row, column in places)


def _ring(rank: int, row: int, column: int) -> Markup:
    return Markup(
        '<rect class="ring" x="{}" y="{}" width="{}" height="{}"><title>rank {}: culprit</title></rect>'
    ).format(_x(column) - 1, _y(row), _PITCH, _PITCH, rank)


def _count(css: str, places: Collection[object]) -> str:
    return f"{name_state(css[2:])}: {len(places)} ranks"


def _legend(states: Mapping[int, str], culprits: frozenset[int]) -> Markup:
    entry = Markup(
        '<li><i class="swatch {}"></i><b>{} {}</b> <span class="ranks">{}</span> <span class="quiet">{}</span></li>'
    )
    entries = [
        entry.format(
            css_state(state), len(ranks), text(name_state(state), 24), short_ranks(ranks), STATES.get(state, "")
        )
        for state, ranks in _by_state(states)
    ]
    if culprits:
        ring = Markup('<li><i class="swatch ring"></i><b>{} culprit{}</b> <span class="ranks">{}</span></li>')
        entries.append(ring.format(len(culprits), "s" if len(culprits) > 1 else "", short_ranks(culprits)))
    return Markup('<ul class="legend">{}</ul>').format(join(entries))


def _by_state(states: Mapping[int, str]) -> Iterator[tuple[str, list[int]]]:
    order = {state: index for index, state in enumerate(STATES)}
    pairs = sorted((order.get(state, len(order)), state, rank) for rank, state in states.items())
    for (_, state), members in groupby(pairs, key=lambda pair: pair[:2]):
        yield state, [rank for _, _, rank in members]


def describe_states(states: Mapping[int, str]) -> Markup:
    """``7 waiting, 1 stuck``."""
    return plain(", ".join(f"{len(ranks)} {name_state(state)}" for state, ranks in _by_state(states)))
