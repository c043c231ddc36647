"""Stacks of many ranks merged into one prefix tree, and its text form. Pure; may import the model only.

The idea and the notation of rank sets are those of STAT, the Stack Trace Analysis Tool (Arnold et al., IPDPS 2007):
a thousand ranks in three places are three branches, and the smallest branch is usually the interesting one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hangwatch.model.capture import Capture
from hangwatch.model.stacks import Frame
from hangwatch.model.text import format_ranks, short_place
from hangwatch.outputs.sanitize import excerpt

_Key = tuple[str, str, int]


class StackNode(msgspec.Struct, frozen=True):
    """A frame that ``ranks`` have in common with all frames above it; ``frame`` is None at the root only.

    ``ends`` are the ranks whose deepest frame this is. Children come smallest rank set first, then lowest rank.
    """

    frame: Frame | None
    ranks: frozenset[int]
    ends: frozenset[int]
    children: tuple[StackNode, ...]


class _Branch:
    """A node under construction. Ranks are recorded only where their stack ends and summed once, at the end."""

    __slots__ = ("children", "ends", "frame")

    def __init__(self, frame: Frame | None) -> None:
        self.frame = frame
        self.children: dict[_Key, _Branch] = {}
        self.ends: list[int] = []


def merge_stacks(stacks: Mapping[int, Sequence[Frame]]) -> StackNode:
    """Return the prefix tree of all ranks' stacks, from the outermost frame on.

    ``stacks``: each rank's frames, deepest first. Frames are equal if function, file and line are. A rank without
    frames ends at the root.
    """
    return _merge(stacks.items())


def _merge(stacks: Iterable[tuple[int, Sequence[Frame]]]) -> StackNode:
    root = _Branch(None)
    for rank, frames in stacks:
        branch = root
        for frame in reversed(frames):
            key = (frame.function, frame.file, frame.line)
            child = branch.children.get(key)
            if child is None:
                child = branch.children[key] = _Branch(frame)
            branch = child
        branch.ends.append(rank)
    return _freeze(root)


def merge_main_stacks(capture: Capture) -> StackNode:
    """Return the tree of each rank's last main-thread stack."""
    stacks: dict[int, Sequence[Frame]] = {}
    for rank in capture.ranks:
        stacks[rank.rank] = rank.stacks[-1].main_frames if rank.stacks else ()
    return merge_stacks(stacks)


def merge_native_stacks(capture: Capture) -> StackNode:
    """Return the tree of all threads with native frames; each outermost frame is the thread's name."""
    return _merge(
        (rank.rank, (*thread.frames, Frame("main thread" if thread.is_main else f"thread {thread.label}", "", 0)))
        for rank in capture.ranks
        if rank.native is not None
        for thread in rank.native.threads
    )


def _freeze(root: _Branch) -> StackNode:
    """Return the finished tree, built without recursion: a stack may be deeper than Python's recursion limit."""
    order: list[_Branch] = [root]
    for branch in order:
        order.extend(branch.children.values())
    frozen: dict[int, StackNode] = {}
    for branch in reversed(order):
        children = [frozen.pop(id(child)) for child in branch.children.values()]
        ends = frozenset(branch.ends)
        if len(children) == 1 and not ends:
            ranks = children[0].ranks
        else:
            ranks = ends.union(*(child.ranks for child in children))
            children.sort(key=lambda child: (len(child.ranks), min(child.ranks)))
        frozen[id(branch)] = StackNode(frame=branch.frame, ranks=ranks, ends=ends, children=tuple(children))
    return frozen[id(root)]


def render_tree(node: StackNode) -> str:
    """Return the tree as text: one block per rank set, ``*`` before a rank's last frame.

    A chain of frames with the same rank set is not indented.
    """
    return "\n".join(_lines(node)) + "\n"


def _lines(root: StackNode) -> Iterator[str]:
    if not root.ranks:
        yield "no stacks"
        return
    without = root.ends
    if without:
        yield f"[{format_ranks(without)}] {_count(without)}: no Python frames"
    tops = root.children
    # One entry per block still to print: its first node, the prefix of its title and the prefix of its frames.
    pending = [(top, "", "") for top in reversed(tops)]
    while pending:
        node, title, prefix = pending.pop()
        yield f"{title}[{format_ranks(node.ranks)}] {_count(node.ranks)}"
        while True:
            yield from _frame_lines(node, prefix)
            if len(node.children) != 1 or node.ends:
                break
            node = node.children[0]
        last = len(node.children) - 1
        forks = [
            (child, prefix + ("  `-" if index == last else "  |-"), prefix + ("    " if index == last else "  | "))
            for index, child in enumerate(node.children)
        ]
        pending.extend(reversed(forks))


def _frame_lines(node: StackNode, prefix: str) -> Iterator[str]:
    frame = node.frame
    if frame is None:
        return
    here = excerpt(frame.function) + (f" ({excerpt(short_place(frame.file, frame.line))})" if frame.file else "")
    if not node.ends:
        yield f"{prefix}  {here}"
        return
    some = f"   [{format_ranks(node.ends)}] only to here" if node.children else ""
    yield f"{prefix}* {here}{some}"
    if frame.source:
        yield f"{prefix}      {excerpt(frame.source)}"


def _count(ranks: frozenset[int]) -> str:
    return "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"
