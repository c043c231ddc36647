"""The small questions rules ask of frames."""

from __future__ import annotations

import pytest

from hangwatch.analysis.places import bare, same_function
from hangwatch.model.stacks import Frame


def test_bare_names_are_the_same_on_every_python() -> None:
    """py-spy qualifies names from Python 3.11 on."""
    assert bare(Frame("Trainer.train", "/t.py", 1)) == bare(Frame("train", "/t.py", 1)) == "train"
    assert bare(Frame("_gpu_gather.<locals>._gpu_gather_one", "/o.py", 1)) == "_gpu_gather_one"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Accuracy.compute", "Similarity.compute", False),
        ("Accuracy.compute", "Accuracy.compute", True),
        ("compute", "Accuracy.compute", True),
        ("compute", "update", False),
    ],
)
def test_methods_of_two_classes_are_two_functions(one: str, other: str, same: bool) -> None:
    """Where both are qualified: the flight recorder never does so."""
    assert same_function(Frame(one, "/srv/train/score.py", 3), Frame(other, "/srv/train/score.py", 9)) == same
    assert not same_function(Frame(one, "/srv/train/score.py", 3), Frame(one, "/srv/train/other.py", 3))
