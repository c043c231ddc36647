"""All ranks at a glance: one cell per rank, coloured by its state, with the same information as text above.

Few ranks are tiles with number and state. Many are squares in one drawing, one path per state: four thousand elements
would slow the browser and be useless to a screen reader. States are also listed as text, and a culprit is a diamond with
its number, so colour is never needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType

from markupsafe import Markup

from hangwatch.model.text import short_ranks
from hangwatch.outputs.html.elements import join, plain, text

#: What each state means, the most important first. Documents and metrics hold the words as they are, and so do texts.
RANK_STATES: Mapping[str, str] = MappingProxyType(
    {
        "lost": "the process is gone",
        "stopped": "stopped by a signal or a frozen cgroup",
        "stuck": "makes no progress, and does not wait for another rank",
        "busy": "works outside any collective",
        "waiting": "waits for other ranks",
        "communicating": "in a collective",
        "running": "outside any collective",
        "unprobed": "runs without the probe",
        "unknown": "no information",
    }
)
#: Up to this many ranks, each is a tile of its own.
MAX_TILES = 64
#: Squares in a row; both are multiples of a block of 8 (the ranks of a typical node), and blocks are separated by a gap.
_COLUMNS, _COLUMNS_MANY = 64, 128
_BLOCK = 8
#: In units of the drawing: pitch of the squares, side of a square, gap between blocks; margins for the numbers. The style
#: sheet draws a run of squares as a dashed line of this width, with dashes of a side.
_PITCH, _SIDE, _APART = 10, 8, 4
_MARGIN, _TOP = 46, 16
#: Half the diagonal of a culprit's diamond, which stands out over its neighbours.
_DIAMOND = 9
#: More culprits than this have no number in the drawing: numbers would hide the squares. The legend names them all.
_MAX_NUMBERS = 8
_ORDER = {state: index for index, state in enumerate(RANK_STATES)}
#: The place of a rank that is not shown.
_LEFT_OUT = "s-other"
DIAMOND_MARK = Markup('<i class="diamond"></i>')


def css_state(state: str) -> str:
    """Return the CSS class of a state."""
    return f"s-{state if state in RANK_STATES else 'unknown'}"


def render_cells(
    states: Mapping[int, str],
    culprits: Collection[int] = (),
    world_size: int | None = None,
    mark: str = "culprit",
    found: Collection[int] | None = None,
) -> Markup:
    """Return the legend, what is wrong first, and a cell per rank, culprits marked by a word.

    Ranks without a state are unknown. ``found``: the ranks to show, all with None; others keep an empty place in a drawing.
    """
    known = dict(states)
    for rank in range(world_size or 0):
        known.setdefault(rank, "unknown")
    if not known:
        return Markup('<p class="quiet">No ranks found yet.</p>')
    shown = known if found is None else {rank: known[rank] for rank in found}
    named = frozenset(culprits) & (frozenset(culprits) if found is None else shown.keys())
    drawing = _tiles(shown, named, mark) if len(known) <= MAX_TILES else _squares(known, shown, named, mark)
    return _legend(shown, named, mark) + drawing


def _tiles(states: Mapping[int, str], culprits: frozenset[int], mark: str) -> Markup:
    tile = Markup('<li class="tile {}"><b>{}</b> <span>{}</span></li>')
    culprit = Markup('<li class="tile culprit"><b>{}</b> <span>{}</span><strong>{}{}</strong></li>')
    tiles = (
        culprit.format(rank, text(state, 24), DIAMOND_MARK, mark)
        if rank in culprits
        else tile.format(css_state(state), rank, text(state, 24))
        for rank, state in sorted(states.items())
    )
    return Markup('<ol class="tiles" aria-label="ranks">{}</ol>').format(join(tiles))


def _squares(states: Mapping[int, str], shown: Collection[int], culprits: frozenset[int], mark: str) -> Markup:
    columns = _COLUMNS if len(states) <= _COLUMNS * 16 else _COLUMNS_MANY
    ranks = sorted(states)
    rows = -(-len(ranks) // columns)
    cells: dict[str, list[tuple[int, int]]] = {}
    for index, rank in enumerate(ranks):
        css = css_state(states[rank]) if rank in shown else _LEFT_OUT
        cells.setdefault(css, []).append(divmod(index, columns))
    paths = (
        Markup('<path class="{}" d="{}"><title>{}</title></path>').format(css, _path(places), _count(css, places))
        for css, places in cells.items()
    )
    named = {rank: divmod(index, columns) for index, rank in enumerate(ranks) if rank in culprits}
    # Scrolling regions must be reachable by keyboard; thousands of ranks scroll on a phone.
    picture = Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="ranks"><svg class="squares{}" role="img"'
        ' aria-label="{} ranks; the list above gives their states" viewBox="0 0 {} {}">'
    ).format(" many" if columns == _COLUMNS_MANY else "", len(shown), _x(columns), _TOP + rows * _PITCH + 2)
    return (
        picture
        + join(_axes(ranks, rows, columns))
        + join(paths)
        + join(_marks(named, columns, mark))
        + Markup("</svg></div>")
    )


def _axes(ranks: list[int], rows: int, columns: int) -> Iterator[Markup]:
    """Yield axis labels: each row's first rank, and the columns' offsets; the sum of both is a square's rank."""
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
    """Return the path of all squares; adjacent ones in a row of a block are one line, which the style sheet dashes."""
    runs: list[list[int]] = []
    for row, column in places:
        if runs and runs[-1][0] == row and sum(runs[-1][1:]) == column and column % _BLOCK:
            runs[-1][2] += 1
        else:
            runs.append([row, column, 1])
    middle = 1 + _SIDE // 2
    return "".join(f"M{_x(column)} {_y(row) + middle}h{count * _PITCH - _PITCH + _SIDE}" for row, column, count in runs)


def _marks(culprits: Mapping[int, tuple[int, int]], columns: int, mark: str) -> Iterator[Markup]:
    """Yield a diamond over each culprit, then its number on the side that has room."""
    diamond = Markup('<path class="culprit" d="M{} {}l{d} {d}l-{d} {d}l-{d} -{d}z"><title>rank {}: {}</title></path>')
    number = Markup('<text class="culprit {}" x="{}" y="{}">{}</text>')
    middle = {
        rank: (_x(column) + _SIDE // 2, _y(row) + 1 + _SIDE // 2, column) for rank, (row, column) in culprits.items()
    }
    yield from (diamond.format(x, y - _DIAMOND, rank, mark, d=_DIAMOND) for rank, (x, y, _) in middle.items())
    for rank, (x, y, column) in middle.items() if len(culprits) <= _MAX_NUMBERS else ():
        left = column > columns // 2
        yield number.format("left" if left else "", x + (-_DIAMOND - 3 if left else _DIAMOND + 3), y + 4, rank)


def _count(css: str, places: Collection[object]) -> str:
    return f"{css[2:]}: {len(places)} ranks"


def _legend(states: Mapping[int, str], culprits: frozenset[int], mark: str) -> Markup:
    entry = Markup(
        '<li><i class="swatch {}"></i><b>{} {}</b> <span class="ranks">{}</span> <span class="quiet">{}</span></li>'
    )
    entries = [
        entry.format(css_state(state), len(ranks), text(state, 24), short_ranks(ranks), RANK_STATES.get(state, ""))
        for state, ranks in _by_state(states)
    ]
    if culprits:
        named = Markup('<li class="culprit">{}<b>{} {}{}</b> <span class="ranks">{}</span></li>')
        several = "s" if len(culprits) > 1 else ""
        entries.insert(0, named.format(DIAMOND_MARK, len(culprits), mark, several, short_ranks(culprits)))
    return Markup('<ul class="legend">{}</ul>').format(join(entries))


def _by_state(states: Mapping[int, str]) -> Iterator[tuple[str, list[int]]]:
    pairs = sorted((state_order(state), state, rank) for rank, state in states.items())
    for (_, state), members in groupby(pairs, key=lambda pair: pair[:2]):
        yield state, [rank for _, _, rank in members]


def state_order(state: str) -> int:
    """Return a sort key: the most important state first."""
    return _ORDER.get(state, len(_ORDER))


def describe_states(states: Mapping[int, str]) -> Markup:
    """Return ``7 waiting, 1 stuck``."""
    return plain(", ".join(f"{len(ranks)} {state}" for state, ranks in _by_state(states)))
