"""What a header says, by its parts."""

from __future__ import annotations

import ast

import pytest

from hangwatch.program.lines import read_header


@pytest.mark.parametrize(
    ("text", "word", "said", "leaves"),
    [
        ("if not batch: return", "if", "not batch", "return"),
        ("elif step % 10 == 0:", "elif", "step % 10 == 0", ""),
        ("except (KeyError, StopIteration) as e: continue", "except", "(KeyError, StopIteration) as e", "continue"),
        ("@lru_cache(maxsize=8): return", "", "@lru_cache(maxsize=8)", "return"),
        ("if a_long_header_that_was_cu… break", "if", "a_long_header_that_was_cu…", "break"),
        ("try:", "try", "", ""),
        ("except:", "except", "", ""),
        ("while(x):", "while", "(x)", ""),
    ],
)
def test_a_header_has_a_word_what_it_says_and_how_a_guard_leaves(text: str, word: str, said: str, leaves: str) -> None:
    """Cut or whole."""
    header = read_header(text)
    assert (header.word, header.said, header.leaves) == (word, said, leaves)


def test_a_loop_binds_names_and_goes_over_something() -> None:
    """Other blocks do neither."""
    loop = read_header("for step, (x, y) in enumerate(loader):")
    assert loop.binds == ("step", "x", "y")
    assert loop.over == "enumerate(loader)"
    assert isinstance(loop.tree, ast.Call)
    condition = read_header("while x in done:")
    assert (condition.binds, condition.over) == ((), "")
    assert isinstance(condition.tree, ast.Compare)


@pytest.mark.parametrize("text", ["with lock:", "except KeyError:", "if a_long_header_that_was_cu…", "try:"])
def test_other_blocks_and_what_was_cut_have_no_tree(text: str) -> None:
    """There is nothing to work out."""
    assert read_header(text).tree is None


def test_a_condition_varies_by_its_variables() -> None:
    """Not by constants, and not by the settings that a number is taken modulo of."""
    assert read_header("if step % self.config.every == 0:").varies_by == {"step"}
    assert read_header("if step > WARM_UP: continue").varies_by == {"step"}
    assert read_header("if step % every == 0:").varies_by == {"step", "every"}


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
    assert read_header(text).by_rank


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
    assert not read_header(text).by_rank


def test_tells_loops_over_batches_from_loops_over_parameters() -> None:
    """Only the first run out unevenly."""
    assert read_header("for p in model.parameters():").of_model
    assert read_header("for name in by_layer:").of_model
    assert not read_header("for step, batch in enumerate(loader):").of_model
    assert not read_header("while True:").of_model
    assert read_header("for block in self.blocks:").of_model
    assert not read_header("for block in blocks(rank):").of_model
