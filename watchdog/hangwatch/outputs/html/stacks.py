"""The merged stacks of all ranks, as a collapsible tree and as a flame graph.

Both are truncated to what a browser can handle; ``stacks.txt`` next to the report is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from hangwatch.analysis.places import is_interpreter, user_frames
from hangwatch.model.slowness import Profile
from hangwatch.model.stacks import Frame
from hangwatch.model.text import number_ranks, short_path, short_ranks
from hangwatch.outputs.html.elements import NOTHING, code, fold, join, place, plain, section
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.sanitize import excerpt
from hangwatch.outputs.stack_tree import StackNode

#: Maximum number of frames drawn, of nested forks, and of frames above one another.
_MAX_NODES = 1500
_MAX_FORKS = 24
_MAX_DEPTH = 120
_ROW = 21
#: Small branches are usually the interesting ones: each gets at least this share of the width, as long as there are few.
_LEAST_SHARE, _LEAST_IN_ALL = 0.5, 0.9
#: Narrower bars are not drawn: they can be neither read nor clicked.
_NARROWEST = 0.004
#: Lines that take less of the time of every rank are not shown.
_LEAST_TIME = 0.01


class SourcePlace(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str
    source: str


def render_stacks(root: StackNode, culprits: Collection[int] = ()) -> Markup:
    """Return the flame graph and the tree; empty markup if there are no stacks."""
    if not root.children:
        return NOTHING
    # If all ranks are culprits, as in a cycle, highlighting them would distinguish nothing.
    named = frozenset(culprits) if set(culprits) < root.ranks else frozenset[int]()
    return section("Merged stacks", _flame(root, named) + _tree(root, named), id="stacks")


def render_profiles(profiles: Sequence[Profile]) -> Markup:
    """Return the lines of the program in which ranks spent their time; empty markup if they were not watched."""
    shares: dict[SourcePlace, list[float]] = {}
    for column, profile in enumerate(profiles):
        for stack in profile.stacks:
            for frame in user_frames(stack.frames)[:1]:
                at = SourcePlace(frame.file, frame.line, frame.function, frame.source or "")
                shares.setdefault(at, [0.0] * len(profiles))[column] += stack.share
    rows = [
        (
            place(at.file, at.line),
            code(at.function),
            code(at.source) if at.source else "",
            *(f"{one:.0%}" for one in ones),
        )
        for at, ones in sorted(shares.items(), key=lambda item: -item[1][0])
        if max(ones) >= _LEAST_TIME
    ]
    heads = ("Line", "In", "Code", *(f"Rank {profile.rank}" for profile in profiles))
    return section("Where their time goes", table(heads, rows, css="profiles"), id="profiles")


def render_native_stacks(root: StackNode, culprits: Collection[int] = ()) -> Markup:
    """Return the tree of all threads with native frames; empty markup if none were captured."""
    if not root.children:
        return NOTHING
    tree = _tree(root, frozenset(culprits), file="native_stacks.txt", opened=False)
    return section("Native stacks", tree, id="native-stacks")


def _tree(root: StackNode, culprits: frozenset[int], *, file: str = "stacks.txt", opened: bool = True) -> Markup:
    left = [_MAX_NODES]
    blocks = join(_block(node, culprits, left, 0, opened) for node in root.children)
    without = Markup("<p>{}: no Python frames</p>").format(number_ranks(root.ends)) if root.ends else NOTHING
    cut = Markup('<p class="quiet">truncated; see {} for the rest</p>').format(file) if left[0] <= 0 else NOTHING
    return Markup('<div class="tree">{}{}{}</div>').format(without, blocks, cut)


def _block(node: StackNode, culprits: frozenset[int], left: list[int], forks: int, opened: bool) -> Markup:
    """Return the frames that a set of ranks has in common, followed by its branches."""
    if left[0] <= 0 or forks > _MAX_FORKS:
        left[0] = 0
        return NOTHING
    chain = [node]
    while len(chain[-1].children) == 1 and not chain[-1].ends:
        chain.append(chain[-1].children[0])
    left[0] -= len(chain)
    shown = chain if len(chain) <= _MAX_DEPTH else chain[: _MAX_DEPTH // 2] + chain[-_MAX_DEPTH // 2 :]
    frames = Markup('<ol class="frames">{}</ol>').format(join(_frame(one) for one in shown))
    below = join(_block(child, culprits, left, forks + 1, True) for child in chain[-1].children)
    last = chain[-1].frame
    thread = chain[0].frame.function + ": " if chain[0].frame is not None and not chain[0].frame.file else ""
    head = Markup('<b{}>{}</b> {}<span class="quiet">{} frame{} down to</span> {}').format(
        Markup(' class="named"') if node.ranks <= culprits else NOTHING,
        number_ranks(node.ranks),
        excerpt(thread),
        len(chain),
        "s" if len(chain) != 1 else "",
        code(last.function) if last is not None else NOTHING,
    )
    return fold(head, frames + below, opened=opened)


def _frame(node: StackNode) -> Markup:
    frame = node.frame
    if frame is None:
        return NOTHING
    source = Markup("<code class=source>{}</code>").format(excerpt(frame.source)) if frame.source else NOTHING
    ends = _ends(node.ends) if node.ends else NOTHING
    return Markup('<li class="{}"><span>{} {}{}</span>{}</li>').format(
        _css(frame), code(frame.function), place(frame.file, frame.line), ends, source
    )


def _ends(ranks: Collection[int]) -> Markup:
    return Markup(' <span class="ends">{} {} here</span>').format(
        number_ranks(ranks), "end" if len(ranks) > 1 else "ends"
    )


def _css(frame: Frame) -> str:
    """Return the CSS class: user code, the interpreter, or a library."""
    if user_frames((frame,)):
        return "f-user"
    return "f-python" if is_interpreter(frame) else "f-library"


def _flame(root: StackNode, culprits: frozenset[int]) -> Markup:
    widths = _widths(root)
    bars: list[Markup] = []
    deepest = 0
    for node, start, share, depth in _places(root, widths):
        if len(bars) >= _MAX_NODES:
            break
        bars.append(_bar(node, start, share, depth, culprits))
        deepest = max(deepest, depth)
    caption = (
        "Outermost frame on top. The width of a bar is the number of ranks in that frame; small branches are widened."
        " Strong colour: your code."
    )
    return Markup(
        '<figure class="flame"><div class="scroll" tabindex="0" role="region" aria-label="flame graph"><svg role="img"'
        ' aria-label="flame graph of the merged stacks; the tree below is equivalent" width="100%" height="{}">{}</svg></div>'
        '<figcaption class="quiet">{}</figcaption></figure>'
    ).format((deepest + 1) * _ROW, join(bars), caption)


def _widths(root: StackNode) -> dict[int, float]:
    """Return the width of every node by its ``id``: the ranks that end in it plus the widths of its children."""
    order = [root]
    for node in order:
        order.extend(node.children)
    leaves = sum(1 for node in order if node.ends)
    least = len(root.ranks) * min(_LEAST_SHARE, _LEAST_IN_ALL / max(leaves, 1))
    widths: dict[int, float] = {}
    for node in reversed(order):
        own = max(len(node.ends), least) if node.ends and node.frame is not None else 0.0
        widths[id(node)] = own + sum(widths[id(child)] for child in node.children)
    return widths


def _places(root: StackNode, widths: dict[int, float]) -> Iterator[tuple[StackNode, float, float, int]]:
    """Yield every frame wide enough to draw: node, start and share of the total width, depth; shallow frames first."""
    whole = widths[id(root)] or 1.0
    row: list[tuple[StackNode, float]] = [(root, 0.0)]
    depth = 0
    while row and depth < _MAX_DEPTH:
        below: list[tuple[StackNode, float]] = []
        for node, start in row:
            at = start
            # Widest first: what most ranks do is on the left, the exceptions on the right.
            for child in sorted(node.children, key=lambda one: -widths[id(one)]):
                share = widths[id(child)] / whole
                if share >= _NARROWEST:
                    yield child, at, share, depth
                    below.append((child, at))
                at += share
        row, depth = below, depth + 1


def _bar(node: StackNode, start: float, share: float, depth: int, culprits: frozenset[int]) -> Markup:
    frame = node.frame
    if frame is None:
        return NOTHING
    # Highlight only branches that contain nothing but culprits.
    named = " named" if culprits and node.ranks <= culprits else ""
    where = f"{frame.function} ({short_path(frame.file)}:{frame.line})"
    label = Markup("{} <tspan>{}</tspan>").format(excerpt(where, 160), f"[{short_ranks(node.ranks)}]")
    return Markup(
        '<svg class="{css}{named}" x="{x:.3f}%" y="{y}" width="{width:.3f}%" height="{height}">'
        '<title>{title}</title><rect width="100%" height="100%"/><text x="6" y="14">{label}</text></svg>'
    ).format(
        css=_css(frame), named=named, x=start * 100, y=depth * _ROW, width=share * 100, height=_ROW - 1,
        title=plain(f"{where}, {number_ranks(node.ranks)}", 600), label=label,
    )  # fmt: skip
