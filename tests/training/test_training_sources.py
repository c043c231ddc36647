"""What is read out of training output: the lines libraries print, hostile bytes, files that are rotated or cut."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.model.telemetry import VALUES, DeepSpeedSettings, LoggedStep
from hangwatch.training.analysis.series import SeriesBuilder
from hangwatch.training.sources.deepspeed_config import parse_deepspeed_words
from hangwatch.training.sources.follow import Follower
from hangwatch.training.sources.lines import parse_line
from hangwatch.training.sources.live_outputs import LiveOutputs, WatchedRank
from hangwatch.training.sources.names import parse_output_name
from hangwatch.training.sources.stream import LINE_LIMIT_BYTES, PIECE_BYTES, LogStream
from hangwatch.training.sources.tensorboard import EventStream, masked_crc
from hangwatch.training.sources.trainer_state import parse_trainer_state

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "training"
NAN = float("nan")

LINES = {
    "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.00025, 'epoch': 0.25}": {
        "loss": 0.0,
        "grad_norm": NAN,
        "learning_rate": 0.00025,
        "epoch": 0.25,
        "texts": {"loss": "0.0", "grad_norm": "nan"},
    },
    " 3%|▎| 3/100 [00:01<00:30]{'loss': '0', 'grad_norm': 'nan', 'epoch': '0.03'}": {
        "loss": 0.0,
        "grad_norm": NAN,
        "epoch": 0.03,
        "texts": {"loss": "'0'", "grad_norm": "'nan'", "epoch": "'0.03'"},
    },
    '{"current_steps": 5, "total_steps": 9, "loss": NaN, "lr": 0.0001, "epoch": 0.1}': {
        "step": 5,
        "loss": NAN,
        "learning_rate": 0.0001,
        "epoch": 0.1,
        "texts": {"loss": "nan"},
    },
    "[2026-11-21 10:00:00,123] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=3, lr=[0.001, 0.002], mom=[]": {
        "step": 10,
        "rank": 0,
        "skipped_steps": 3,
        "learning_rate": 0.001,
    },
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768": {
        "rank": 0,
        "overflow": True,
        "loss_scale": 65536.0,
        "texts": {"overflow": "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"},
    },
    "[titan] - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1234  \x1b[38;2;1;2;3mgrad_norm:  1.5  \x1b[36mmemory: 1.0GiB": {
        "step": 10,
        "loss": 7.1234,
        "grad_norm": 1.5,
    },
    "Epoch 1:  50%|███  | 40/80 [00:03<00:03, 10.84it/s, v_num=10, train_loss=0.693]": {
        "step": 120,
        "epoch": 1.5,
        "loss": 0.693,
    },
    " iteration  10/ 500 | learning rate: 1.0E-04 | lm loss: 7.5E+00 | loss scale: 1.0 | grad norm: 1.25 |"
    " number of skipped iterations:   1 | number of nan iterations:   0 |": {
        "step": 10,
        "learning_rate": 0.0001,
        "loss": 7.5,
        "loss_scale": 1.0,
        "grad_norm": 1.25,
        "overflow": True,
    },
    "Epoch 0:  12%|#  | 1/8 [00:00<00:01, 11.4it/s, v_num=0, train_loss=nan.0]": {
        "step": 1,
        "epoch": 0.125,
        "loss": NAN,
        "texts": {"loss": "nan"},
    },
    "step 3: aux loss: 0.000, total loss: 2.5, lm loss: 2.0": {"step": 3, "loss": 2.5},
    "{'loss': 0.0, 'grad_norm': 0.5, 'reward': 0.25, 'global_step/max_steps': '2/4389', 'epoch': 0.1}": {
        "step": 2,
        "loss": 0.0,
        "grad_norm": 0.5,
        "epoch": 0.1,
        "texts": {"loss": "0.0", "reward": "0.25"},
    },
    '{"loss": 1.5, "grad_norm": 0.5, "global_step/max_steps": "2/4389"}': {"step": 2, "loss": 1.5, "grad_norm": 0.5},
    "Epoch [1/5], Step [100/600], Loss: 0.25": {"step": 100, "loss": 0.25},
    "iter 120: loss 2.5, time 30ms": {"step": 120, "loss": 2.5},
}
NO_STEPS = (
    "{'eval_loss': 0.3, 'epoch': 1.0}",
    "{'train_runtime': '4.6', 'train_loss': '4.1', 'epoch': '0.6'}",
    "validate step: 10  loss: 3.2  memory: 1.0GiB",
    "step 10: train loss 2.31, val loss 2.40",
    "step 3 of 4: packet loss 4%",
    '{"current_steps": 5, "total_steps": 9, "percentage": 50.0}',
    '{"loss": ' + "[" * 5000,
    "loss of step 5",
    "step 100 [D loss: 0.000] [G loss: 8.1]",
    '{"train_runtime": 12.5, "train_loss": 0.4, "global_step/max_steps": "9/9"}',
)


def _same(found: LoggedStep | None, expected: dict[str, object]) -> bool:
    if found is None:
        return False
    names = [name for name in found.__struct_fields__ if name not in ("source", "at_ns")]
    blank = LoggedStep(source="", at_ns=0)
    return all(repr(getattr(found, name)) == repr(expected.get(name, getattr(blank, name))) for name in names)


@pytest.mark.parametrize("line", LINES)
def test_lines_of_training_libraries_are_read(line: str) -> None:
    """Each form of line gives its numbers, NaN among them, and the words where they tell more than the number."""
    found = parse_line(line)
    assert _same(found, LINES[line]), found


@pytest.mark.parametrize("line", NO_STEPS)
def test_other_lines_are_no_steps(line: str) -> None:
    """Evaluation, summaries and talk of a loss are not taken for a logged step."""
    assert parse_line(line) is None


@pytest.mark.parametrize("version", ["4.57.6", "5.23.0"])
def test_output_of_a_real_trainer_is_read(version: str) -> None:
    """All lines of a real run are found between the carriage returns of its progress bar, in any cut of the bytes."""
    data = (FIXTURES / f"transformers-{version}.log").read_bytes()
    whole = LogStream("log").feed(data, 7)
    assert len(whole) == 8
    assert all(step.loss and 3.5 < step.loss < 4.5 and step.source == "log" and step.step is None for step in whole)
    assert ("'" in whole[0].texts.get("loss", "")) == (version == "5.23.0")
    stream = LogStream("log")
    assert [step for byte in range(len(data)) for step in stream.feed(data[byte : byte + 1], 7)] == whole


def test_overflow_goes_to_the_next_line_with_a_loss() -> None:
    """DeepSpeed's lines of skipped steps name no step: the loss that follows carries them, and their number so far."""
    overflow = b"[deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.\n"
    lines = overflow * 2 + b"{'loss': 0.0, 'epoch': 0.1}\n{'loss': 0.0, 'epoch': 0.2}\n"
    first, second = LogStream("log").feed(lines, 7)
    assert (first.overflow, first.skipped_steps, second.overflow) == (True, 2, None)
    assert first.texts["overflow"].startswith("OVERFLOW! Skipping step.")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=400), st.sampled_from([line.encode() for line in LINES]), st.just(b"\n"))))
def test_no_bytes_do_harm(parts: list[bytes]) -> None:
    """Whatever is in the output, in whatever pieces it comes, reading it raises nothing and gives well-formed steps."""
    log, events = LogStream("log"), EventStream("events")
    for part in parts:
        for step in (*log.feed(part, 7), *events.feed(part, 7)):
            assert step.source in ("log", "events")
            assert step.step is None or 0 <= step.step < 10**12


def test_long_lines_and_floods_are_bounded() -> None:
    """A line of 10 MB is skipped, the line after it is read; of a flood of lines a sample with the last one is read."""
    stream = LogStream("log")
    stream.feed(b"x 'loss': " * 1_000_000, 7)
    assert len(stream._rest) <= LINE_LIMIT_BYTES
    (after,) = stream.feed(b"\nstep 5: loss 0.5\n", 7)
    assert after.step == 5
    flood = b"".join(b"step %d: loss 0.5\n" % number for number in range(50_000))
    read = LogStream("log").feed(flood, 7)
    assert read[-1].step == 49_999
    assert 20 <= len(read) <= 60 * (1 + len(flood) // PIECE_BYTES)
    numbers = [step.step for step in read]
    assert numbers == sorted(set(numbers), key=lambda number: number or 0)


def test_lines_of_several_ranks_are_distinguished() -> None:
    """What torchrun --tee puts before each line says whose it is; where a file is one rank's, that is known better."""
    words = (
        "[default0]:step 5: loss 0.5",
        "[default3]:step 5: loss nan",
        "  [rank11]: step 6: loss 0.5",
        "[epoch9]: step 7: loss 1",
    )
    lines = "".join(f"{line}\n" for line in words).encode()
    assert [step.rank for step in LogStream("log").feed(lines, 7)] == [0, 3, 11, None]
    assert [step.rank for step in LogStream("log", 2).feed(lines, 7)] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("path", "rank", "family"),
    [
        ("logs/none_x/attempt_1/3/stdout.log", 3, "logs/none_x/"),
        ("logs/rank3.log", 3, "logs/rank*.log"),
        ("logs/train_rank_12.out", 12, "logs/train_rank_*.out"),
        ("run-7/train.log.rank-0", 0, "run-7/train.log.rank-*"),
        ("frank3.log", None, ""),
        ("rank3/train.log", None, ""),
        ("train.log", None, ""),
    ],
)
def test_names_of_files_tell_whose_they_are(path: str, rank: int | None, family: str) -> None:
    """torchrun's folders and files called after a rank; a folder's name or another word is none."""
    found = parse_output_name(path)
    assert (found.rank if found else None, found.family if found else "") == (rank, family)


def test_a_progress_bar_tells_where_a_line_stands() -> None:
    """The last bar before a line that names no step is kept with it."""
    lines = b"\r  5%|#  | 10/200 [00:10<03:00,  1.0it/s]\r      \r{'loss': 0.5, 'epoch': 0.1}\n"
    (step,) = LogStream("log").feed(lines, 7)
    assert step.texts["bar"] == "10/200"


def _read(follower: Follower) -> list[tuple[bool, bytes]]:
    return list(follower.read_new(1 << 20))


def test_a_file_is_followed_across_rotation_truncation_and_deletion(tmp_path: Path) -> None:
    """Nothing is lost or read twice when a log is renamed, emptied in place, emptied and grown beyond, or gone and back."""
    path = tmp_path / "train.log"
    follower = Follower(path)
    assert _read(follower) == []
    path.write_bytes(b"one\n")
    assert _read(follower) == [(False, b"one\n")]
    with path.open("ab") as old:
        path.rename(tmp_path / "train.log.1")
        path.write_bytes(b"three\n")
        old.write(b"two\n")
        old.flush()
    assert _read(follower) == [(False, b"two\n"), (True, b"three\n")]
    path.write_bytes(b"4\n")  # emptied in place
    assert _read(follower) == [(True, b"4\n")]
    path.write_bytes(b"five, and longer than before\n")
    assert _read(follower) == [(True, b"five, and longer than before\n")]
    path.unlink()
    assert _read(follower) == []
    path.write_bytes(b"six\n")
    assert _read(follower) == [(True, b"six\n")]
    path.unlink()
    path.mkdir()  # no file at all has its name for a while
    assert _read(follower) == []
    path.rmdir()
    path.write_bytes(b"seven\n")
    assert _read(follower) == [(True, b"seven\n")]
    follower.close()


def test_a_file_system_that_goes_and_comes_back_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale handle, as of NFS, is an error once; the file is opened again and read on from where it was."""
    path = tmp_path / "train.log"
    path.write_bytes(b"one\n")
    follower = Follower(path)
    assert _read(follower) == [(False, b"one\n")]
    with monkeypatch.context() as gone:

        def stale(*_: object) -> bytes:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        gone.setattr(os, "pread", stale)
        with pytest.raises(OSError, match=r"[Ss]tale"):
            _read(follower)
    with path.open("ab") as file:
        file.write(b"two\n")
    assert _read(follower) == [(False, b"two\n")]
    follower.close()


def _event(step: int, tag: bytes, value: float) -> bytes:
    """A record as TensorFlow's writer frames it, with one scalar."""
    scalar = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    event = b"\x09" + struct.pack("<d", 1.5e9) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", masked_crc(length)) + event + b"\0\0\0\0"


def test_checksums_are_those_of_the_format() -> None:
    """CRC-32C of nine digits is the value in RFC 3720's tables, masked as TensorFlow masks it."""
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_event_files_are_read_in_any_pieces() -> None:
    """Scalars come out with step and wall clock; what is no training value is left, and damage ends the reading."""
    data = _event(1, b"train/loss", 2.5) + _event(1, b"eval/loss", 9.0) + _event(2, b"train/loss", NAN)
    stream = EventStream("events")
    found = [step for byte in range(len(data)) for step in stream.feed(data[byte : byte + 1], 7)]
    assert [(step.step, str(step.loss), step.at_ns) for step in found] == [
        (1, "2.5", 1_500_000_000_000_000_000),
        (2, "nan", 1_500_000_000_000_000_000),
    ]
    assert stream.feed(b"x" * 100 + data, 7) == []


_EVENT_FILES = {
    "torch-2.13-nan": (12, {"loss", "learning_rate", "grad_norm"}, 8),
    "lightning-2.6.6-nan": (24, {"loss", "grad_norm", "epoch"}, 12),
    "transformers-4.57.6-nan-weights": (8, {"loss", "grad_norm", "learning_rate", "epoch"}, None),
    "transformers-4.57.6-resumed": (8, {"loss", "grad_norm", "learning_rate", "epoch"}, None),
}


@pytest.mark.parametrize("name", _EVENT_FILES)
def test_event_files_of_real_runs_are_read(name: str) -> None:
    """What torch, Lightning and transformers wrote: every step with its values, and no summary taken for a step's loss."""
    count, values, bad_from = _EVENT_FILES[name]
    builder = SeriesBuilder()
    for step in EventStream("events").feed((FIXTURES / f"{name}.tfevents").read_bytes(), 7):
        builder.add(step)
    steps = builder.steps()
    assert len(steps) == count
    reported = {field for step in steps for field in VALUES if getattr(step, field) is not None}
    assert reported == values
    bad = [step.step for step in steps if step.loss != step.loss]
    assert bad == ([step.step for step in steps if bad_from is not None and (step.step or 0) >= bad_from])
    if name == "transformers-4.57.6-resumed":
        assert [step.step for step in steps] == [*range(7, 15)]
        assert all(3.5 < (step.loss or 0) < 4 for step in steps)


@pytest.mark.parametrize("name", _EVENT_FILES)
def test_event_files_that_break_off_are_read_so_far(name: str) -> None:
    """Cut anywhere, as by a crash or while it is written, a file gives what is whole in it and raises nothing."""
    data = (FIXTURES / f"{name}.tfevents").read_bytes()
    whole = EventStream("events").feed(data, 7)
    for end in range(0, len(data), 7):
        part = EventStream("events").feed(data[:end], 7)
        assert repr(part) == repr(whole[: len(part)])
    assert len(EventStream("events").feed(data[:-9], 7)) >= len(whole) - 1
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    assert len(EventStream("events").feed(bytes(damaged), 7)) <= len(whole)


def test_what_an_engine_prints_of_itself_is_read() -> None:
    """DeepSpeed's own print of its configuration, as 0.19.8 wrote it and as older releases call things."""
    log = (FIXTURES / "deepspeed-0.19.8-engine.log").read_bytes()
    words = parse_deepspeed_words(log)
    assert (words.version, words.world_size) == ("0.19.8", 1)
    assert words.settings == DeepSpeedSettings(
        source="log", stage=2, overlap_comm=True, reduce_bucket_size=50_000_000, dtype="bf16",
        check_grad_overflow=True, gradient_accumulation_steps=1,
    )  # fmt: skip
    assert [step.step for step in LogStream("log").feed(log, 7)] == [0, 1, 2, 3]
    prefix = b"[INFO] [config.py:974:print]   "
    older = (
        prefix
        + b"bfloat16_enabled ............. True\n"
        + prefix
        + b"zero_config .................. stage=3 overlap_comm=False\n"
    )
    settings = parse_deepspeed_words(older).settings
    assert settings is not None
    assert (settings.stage, settings.overlap_comm, settings.dtype, settings.check_grad_overflow) == (
        3,
        False,
        "bf16",
        None,
    )
    assert parse_deepspeed_words(b"nothing of the kind").settings is None


def test_a_checkpoints_state_is_read_with_bare_nan() -> None:
    """``trainer_state.json`` holds what JSON does not have; only entries with a loss are steps."""
    data = b'{"log_history": [{"epoch": 0.1, "loss": NaN, "step": 1}, {"eval_loss": 1.0, "step": 1}, {"loss": 0.5, "step": 2}]}'
    found = parse_trainer_state(data, "state", 7)
    assert [(step.step, str(step.loss)) for step in found] == [(1, "nan"), (2, "0.5")]
    with pytest.raises(ValueError, match="no log_history"):
        parse_trainer_state(b"[]", "state", 7)


def test_only_what_the_job_itself_wrote_counts(tmp_path: Path, jobs) -> None:  # type: ignore[no-untyped-def]
    """The output of a rank is found by its descriptors; in a file named by the user, what stood there before is no news."""
    named = tmp_path / "named.log"
    named.write_text("step 1: loss 0.0\n")
    code = "import sys; print('step 7: loss 0.5', flush=True); sys.stdin.readline()"
    import subprocess
    import sys

    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out, stdin=subprocess.PIPE, cwd=tmp_path)
    files = LiveOutputs((str(tmp_path / "*.log"),))
    ranks = [WatchedRank(0, process.pid, 0.0)]
    found: list[LoggedStep] = []
    try:
        from support import wait_for

        def seen() -> bool:
            found.extend(files.poll(ranks)[0])
            return bool(found)

        wait_for(seen, 60, "the rank's output")
        with named.open("a") as file:
            file.write("step 8: loss 0.25\n")
        found += files.poll(ranks)[0]
    finally:
        process.communicate(b"\n")
        files.close()
    assert [(step.step, step.loss, Path(step.source).name) for step in found] == [
        (7, 0.5, "out"),
        (8, 0.25, "named.log"),
    ]
