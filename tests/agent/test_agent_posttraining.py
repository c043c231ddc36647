"""What a training left, as a capture: torchrun's folders, compressed logs, a configuration beside them, broken files."""

from __future__ import annotations

import gzip
from pathlib import Path

from hangwatch.model.capture import Capture
from hangwatch.training.postmortem import read_training

_GOOD = "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
_BAD = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}\n"


def _read(path: Path) -> Capture | None:
    return read_training(path, "job", lambda *_: None)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_last_attempt_of_torchrun_counts(tmp_path: Path) -> None:
    """An earlier attempt failed and was followed by another; ranks that print nothing are ranks all the same."""
    for rank in range(4):
        _write(tmp_path / f"none_abc/attempt_0/{rank}/stdout.log", _BAD * 5 if rank == 0 else "")
        _write(tmp_path / f"none_abc/attempt_1/{rank}/stdout.log", _GOOD * 4 if rank == 0 else "")
        _write(tmp_path / f"none_abc/attempt_1/{rank}/stderr.log", "a warning\n")
    capture = _read(tmp_path)
    assert capture is not None
    assert capture.training is not None
    assert capture.job.world_size == 4
    assert [step.loss for step in capture.training.steps] == [2.5] * 4


def test_files_called_after_their_ranks_are_one_run(tmp_path: Path) -> None:
    """Each rank writes a log of its own: rank 0 speaks for the job, the others stand beside it."""
    for rank in range(3):
        _write(tmp_path / f"rank{rank}.log", "".join(f"step {n}: loss {2.5 - rank}\n" for n in range(1, 5)))
    capture = _read(tmp_path)
    assert capture is not None
    assert capture.training is not None
    assert [step.loss for step in capture.training.steps] == [2.5] * 4
    assert [(found.rank, found.steps[0].loss) for found in capture.training.ranks] == [(1, 1.5), (2, 0.5)]


def test_a_compressed_log_with_its_configuration_beside_it(tmp_path: Path) -> None:
    """A rotated and packed log is read; the one configuration of DeepSpeed that lies there is taken for its own."""
    (tmp_path / "train.log.gz").write_bytes(gzip.compress((_GOOD * 3 + _BAD * 4).encode()))
    _write(tmp_path / "zero2.json", '{"zero_optimization": {"stage": 2, "overlap_comm": true}}')
    _write(tmp_path / "dataset.json", '{"zero_optimization": 1}')
    for path in (tmp_path, tmp_path / "train.log.gz"):
        capture = _read(path)
        assert capture is not None
        assert capture.training is not None
        settings = capture.training.setups[0].deepspeed
        assert settings is not None
        assert (settings.source, settings.stage, settings.overlap_comm) == ("zero2.json", 2, True)
    _write(tmp_path / "ds_other.json", '{"zero_optimization": {"stage": 3}}')
    capture = _read(tmp_path)
    assert capture is not None
    assert capture.training is not None
    assert capture.training.setups[0].deepspeed is None
    assert [gap.source for gap in capture.gaps] == ["time", "configuration"]


def test_a_broken_file_is_said_and_the_others_read(tmp_path: Path) -> None:
    """A packed log that breaks off, a state that is being written: named, with why."""
    _write(tmp_path / "train.log", _GOOD * 3 + "{'loss': 2.5, 'grad_norm': 1.0}")
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(_GOOD.encode() * 100)[:-20])
    _write(tmp_path / "trainer_state.json", '{"log_history": [{"loss": 2.5, "st')
    capture = _read(tmp_path)
    assert capture is not None
    assert capture.training is not None
    assert len(capture.training.steps) == 4
    assert sorted(gap.reason.split(":")[0] for gap in capture.gaps) == ["old.log.gz", "trainer_state.json"]


def test_nothing_that_tells_of_a_step(tmp_path: Path) -> None:
    """None, and no error."""
    _write(tmp_path / "train.log", "hello\n")
    assert _read(tmp_path) is None
