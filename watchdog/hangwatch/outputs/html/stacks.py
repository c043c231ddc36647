"""The merged stacks of all ranks, as a collapsible tree.

It is truncated to what a browser can handle; ``stacks.txt`` next to the report is complete.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from markupsafe import Markup

from hangwatch.analysis.places import user_frames
from hangwatch.model.slowness import SlowJob, SlowRank
from hangwatch.model.text import number_ranks
from hangwatch.outputs.html.elements import NOTHING, code, fold, join, place, section
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.sanitize import excerpt
from hangwatch.outputs.stack_tree import StackNode

#: Maximum number of frames shown, of nested forks, and of frames above one another.
_MAX_NODES = 1500
_MAX_FORKS = 24
_MAX_DEPTH = 120
#: Lines that take less of the time of every rank are not shown.
_LEAST_TIME = 0.01


class SourcePlace(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str
    source: str


def render_stacks(root: StackNode, culprits: Collection[int] = ()) -> Markup:
    """Return the tree; empty markup if there are no stacks."""
    if not root.children:
        return NOTHING
    # If all ranks are culprits, as in a cycle, highlighting them would distinguish nothing.
    named = frozenset(culprits) if set(culprits) < root.ranks else frozenset[int]()
    return section("Merged stacks", _tree(root, named), id="stacks")


def render_profiles(slow: SlowRank | SlowJob) -> Markup:
    """Return the lines of the program in which ranks spent their time; empty markup if they were not watched."""
    profiles = slow.profiles
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
    columns = ("Now", "Before") if isinstance(slow, SlowJob) else (f"Rank {profile.rank}" for profile in profiles)
    heads = ("Line", "In", "Code", *columns)
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
        "own" if user_frames((frame,)) else "library", code(frame.function), place(frame.file, frame.line), ends, source
    )


def _ends(ranks: Collection[int]) -> Markup:
    return Markup(' <span class="ends">{} {} here</span>').format(
        number_ranks(ranks), "end" if len(ranks) > 1 else "ends"
    )
