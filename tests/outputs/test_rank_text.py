"""The words for ranks and files that every part shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.text import format_ranks, short_path


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "none"),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([2, 0, 1], "0-2"),
        ([0, 1, 2, 3, 4, 5, 6, 9], "0-6,9"),
        ([1, 3, 5], "1,3,5"),
        ([7, 7, 7], "7"),
    ],
)
def test_rank_sets_read_as_ranges(ranks: list[int], text: str) -> None:
    """Neighbours become a range, whatever the order and repetitions."""
    assert format_ranks(ranks) == text


@given(st.sets(st.integers(min_value=0, max_value=70)))
def test_rank_text_holds_exactly_the_ranks(ranks: set[int]) -> None:
    """Reading the text back gives the same set."""
    text = format_ranks(ranks)
    read: set[int] = set()
    for part in [] if text == "none" else text.split(","):
        first, _, last = part.partition("-")
        read.update(range(int(first), int(last or first) + 1))
    assert read == ranks


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", "yaml/reader.py"),
        ("/usr/lib/python3.11/multiprocessing/queues.py", "multiprocessing/queues.py"),
        ("/usr/lib/python3.11/threading.py", "threading.py"),
        ("/home/ada/project/train/evaluate.py", "train/evaluate.py"),
        ("train.py", "train.py"),
        ("<string>", "<string>"),
        ("", ""),
    ],
)
def test_paths_are_cut_to_what_names_the_module(file: str, short: str) -> None:
    """Installed modules are named from their package, the user's files by folder and name."""
    assert short_path(file) == short
