"""Stacks of many ranks merged into one tree."""

from __future__ import annotations

import random

from examples import stack
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.stacks import Frame
from hangwatch.outputs.stack_tree import StackNode, merge_stacks, render_tree

MAIN = Frame("main", "/home/ada/run/train.py", 10, "step()")
WAIT = Frame("wait", "/x/site-packages/torch/c10d.py", 5, "work.wait()")
SAVE = Frame("save", "/home/ada/run/train.py", 30, "torch.save(model)")
FORK = Frame("step", "/home/ada/run/train.py", 20, "wait()")

FRAMES = st.lists(st.sampled_from([MAIN, WAIT, SAVE, FORK]), max_size=5)
STACKS = st.dictionaries(st.integers(0, 30), FRAMES, max_size=12)


def test_the_tree_names_rank_sets_and_marks_where_ranks_are() -> None:
    """Chains are not indented, the small branch comes first, last frames bear a star and their source line."""
    stacks: dict[int, tuple[Frame, ...]] = dict.fromkeys(range(9), (WAIT, FORK, MAIN))
    stacks[7] = (SAVE, MAIN)
    stacks[9] = (FORK, MAIN)
    stacks[10] = ()
    assert render_tree(merge_stacks(stacks)) == (
        "[10] 1 rank: no Python frames\n"
        "[0-9] 10 ranks\n"
        "  main (run/train.py:10)\n"
        "  |-[7] 1 rank\n"
        "  | * save (run/train.py:30)\n"
        "  |       torch.save(model)\n"
        "  `-[0-6,8-9] 9 ranks\n"
        "    * step (run/train.py:20)   [9] only to here\n"
        "          wait()\n"
        "      `-[0-6,8] 8 ranks\n"
        "        * wait (torch/c10d.py:5)\n"
        "              work.wait()\n"
    )


def test_a_real_hang_forks_below_the_line_both_ranks_share() -> None:
    """Two ranks in one evaluation loop share its frames and part below it."""
    text = render_tree(merge_stacks({0: stack(0), 1: stack(1)}))
    shared, _, forks = text.partition("evaluation_loop")
    assert shared.startswith("[0-1] 2 ranks\n  <module> (finetune/train.py:96)\n")
    assert "|-[0] 1 rank" in forks
    assert "`-[1] 1 rank" in forks


def test_no_stacks_is_said() -> None:
    """An empty tree is a line and not an empty file."""
    assert render_tree(merge_stacks({})) == "no stacks\n"


def test_escape_sequences_in_frames_do_no_harm() -> None:
    """A function's name, file and source are written out."""
    evil = Frame("\x1b[2Jf", "/a/\x1b]0;x\x07.py", 1, "\x1b[31mred")
    assert "\x1b" not in render_tree(merge_stacks({0: (evil,)}))


def test_recursion_deeper_than_pythons_own_is_merged() -> None:
    """A stack of 20,000 frames that forks at its end costs no recursion of ours."""
    deep = [Frame("f", "/a/b.py", k % 3, None) for k in range(20_000)]
    node = merge_stacks({0: [SAVE, *deep], 1: [WAIT, *deep]})
    assert render_tree(node).count("\n") > 20_000


@given(STACKS)
def test_every_rank_ends_exactly_once(stacks: dict[int, list[Frame]]) -> None:
    """The ends partition the ranks, and a node's ranks are those that end at or below it."""
    node = merge_stacks(stacks)
    ends: list[int] = []

    def visit(one: StackNode) -> set[int]:
        ends.extend(one.ends)
        below = set(one.ends).union(*(visit(child) for child in one.children))
        assert one.ranks == below
        return below

    visit(node)
    assert sorted(ends) == sorted(stacks)
    render_tree(node)


@given(STACKS, st.randoms(use_true_random=False))
def test_the_order_of_ranks_does_not_matter(stacks: dict[int, list[Frame]], shuffler: random.Random) -> None:
    """The same stacks in another order give the same text."""
    items = list(stacks.items())
    shuffler.shuffle(items)
    assert render_tree(merge_stacks(dict(items))) == render_tree(merge_stacks(stacks))
