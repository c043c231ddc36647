"""What a real DeepSpeed engine and a real Lightning Trainer are read for, in one process each, step by step."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable

import pytest
from probe_runs import Run

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.beats import parse_setup, parse_steps
from hangwatch.training.sources.stream import LogStream

#: A step is taken for each line on standard input; in the third one gradient is infinite, and the step is skipped.
ENGINE = """
import logging, os, sys
import deepspeed, torch
from deepspeed.utils import logger
logger.setLevel(logging.INFO)
for handler in logger.handlers:
    handler.setLevel(logging.INFO)
    handler.setStream(sys.stdout)
torch.distributed.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
zero = {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 50000000}
adam = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
warm_up = {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 10, "warmup_type": "linear"}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "steps_per_print": 1,
    "bf16": {"enabled": True}, "optimizer": adam, "scheduler": warm_up, "zero_optimization": zero})
for step, _ in enumerate(iter(sys.stdin.readline, "end\\n"), 1):
    for _ in range(2):
        loss = engine(torch.ones(2, 8, dtype=torch.bfloat16)).square().mean()
        engine.backward(loss * float("inf") if step == 3 else loss)
        engine.step()
torch.distributed.destroy_process_group()
"""
LIGHTNING = """
import sys, lightning, torch
class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)
    def training_step(self, batch, number):
        sys.stdin.readline()
        loss = self.net(batch).square().mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = lightning.Trainer(max_steps=4, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Line(), torch.utils.data.DataLoader(torch.ones(8, 2)))
"""


def _steps(beat: Beat) -> list[LoggedStep]:
    found = parse_steps(beat, 0, 0)
    assert not isinstance(found, Gap)
    return list(found[1])


def _reached(process: subprocess.Popen[str], number: int) -> Callable[[Beat], bool]:
    """Whether a beat tells that step; a process that has ended will not."""

    def accept(beat: Beat) -> bool:
        assert process.poll() is None, process.communicate()
        return beat.telemetry is not None and beat.telemetry.reached == number

    return accept


@pytest.mark.timeout(600)
def test_an_engine_is_read_step_by_step(run: Run) -> None:
    """Steps, the skipped one among them, learning rate, gradient norm, the configuration in force; its output says the same."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is no part of this environment")
    rendezvous = f"file://{run.scratch}/rendezvous"
    process = run.start_rank(run.write(ENGINE), DS_ACCELERATOR="cpu", RENDEZVOUS=rendezvous)
    assert process.stdin is not None
    for number in range(1, 6):
        process.stdin.write("go\n")
        process.stdin.flush()
        beat = run.wait_beat(process.pid, _reached(process, number), 400)
    reported = [step for step in _steps(beat) if step.source == "deepspeed"]
    setup = parse_setup(beat, 0)
    out, err = process.communicate("end\n", timeout=200)
    assert process.returncode == 0, err
    assert [(s.step, s.skipped_steps, s.overflow) for s in reported] == [
        (1, 0, False), (2, 0, False), (3, 1, True), (4, 1, False), (5, 1, False),
    ]  # fmt: skip
    rates = [s.learning_rate for s in reported]
    assert rates[2] == rates[1], "a step that is skipped leaves the schedule where it was"
    assert sorted(set(rates), key=lambda rate: rate or 0) == list(dict.fromkeys(rates))
    assert all(
        s.grad_norm is not None and math.isfinite(s.grad_norm) and s.grad_norm > 0 for s in reported if not s.overflow
    )
    assert setup is not None
    settings = setup.deepspeed
    assert settings is not None
    assert (settings.source, settings.stage, settings.overlap_comm, settings.dtype) == ("engine", 2, True, "bf16")
    assert (settings.check_grad_overflow, settings.reduce_bucket_size) == (True, 50_000_000)
    assert settings.gradient_accumulation_steps == 2
    assert setup.versions.keys() >= {"torch", "deepspeed"}
    printed = [s for s in LogStream("out").feed(out.encode(), 1) if s.step]
    assert [(s.step, s.skipped_steps) for s in printed] == [(s.step, s.skipped_steps) for s in reported]


@pytest.mark.usefixtures("long")  # which Lightning is installed for, with the catalogue
@pytest.mark.timeout(600)
def test_a_lightning_trainer_tells_how_far_it_is(run: Run) -> None:
    """Each optimizer step is seen; its metrics, which are tensors, are left alone. Lightning comes with ``make test-long``."""
    pytest.importorskip("lightning", reason="Lightning is no part of this environment: make test-long installs it")
    process = run.start(run.write(LIGHTNING), env=run.environment(OMP_NUM_THREADS="1"))
    assert process.stdin is not None
    for number in range(1, 4):
        process.stdin.write("go\n")
        process.stdin.flush()
        beat = run.wait_beat(process.pid, _reached(process, number), 400)
    assert (beat.alone, beat.problems, _steps(beat)) == (True, (), [])
    setup = parse_setup(beat, 0)
    assert setup is not None
    assert "lightning" in setup.versions
    _, err = process.communicate("go\n", timeout=200)
    assert process.returncode == 0, err
