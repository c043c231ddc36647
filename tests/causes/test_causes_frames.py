"""The small questions rules ask of text and frames."""

from __future__ import annotations

import pytest

from hangwatch.analysis.divergence.frames import by_rank, is_parameter_loop, same_function
from hangwatch.analysis.places import bare
from hangwatch.model.stacks import Frame


@pytest.mark.parametrize(
    "text",
    [
        "if rank == 0:", "if dist.get_rank() == 0 and step % 10 == 0:", "if args.local_rank in (-1, 0):", "if RANK == 0:",
        "if self.is_world_process_zero():", "if not accelerator.is_main_process:", "if is_master:", "if master:",
        "if trainer.is_global_zero or global_rank == 0:", 'if os.environ["LOCAL_RANK"] == "0":', "if self.rank_id == 0:",
        "if state.process_index == 0:", "if dp_rank < 2:", "if trainer.is_global_zero:", "if epoch > 2 and r == 0:",
        "if gpu != 0:",
    ],
)  # fmt: skip
def test_knows_a_condition_on_the_rank(text: str) -> None:
    """In whatever usual words."""
    assert by_rank(text)


@pytest.mark.parametrize(
    "text",
    [
        "if step % 4 == 0:",
        "if lora_rank > 8:",
        "if torch.isnan(loss):",
        "if ranking:",
        "if frank:",
        "if do_sync_step:",
        "if r < 0.5:",
        "if var == 0:",
    ],
)
def test_knows_other_conditions(text: str) -> None:
    """A low-rank adapter is no rank."""
    assert not by_rank(text)


def test_tells_loops_over_batches_from_loops_over_parameters() -> None:
    """Only the first run out unevenly."""
    assert is_parameter_loop("for p in model.parameters():")
    assert is_parameter_loop("for name in by_layer:")
    assert not is_parameter_loop("for step, batch in enumerate(loader):")
    assert not is_parameter_loop("while True:")
    assert is_parameter_loop("for block in self.blocks:")
    assert not is_parameter_loop("for block in blocks(rank):")


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
