"""What training says of itself inside a probed process, and that it trains as it would without us."""

from __future__ import annotations

import math

import pytest
from probe_runs import SITE, Run

from hangwatch.model.capture import Gap
from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.beats import parse_setup, parse_steps

TRAINING = """
import pickle, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
size = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, max_position_embeddings=32, **size))
ids = torch.arange(16) % 64
data = [{"input_ids": ids + shift, "labels": ids + shift} for shift in range(40)]
options = dict(report_to="none", use_cpu=True, save_strategy="no", logging_steps=2, disable_tqdm=True)
class Rewarded(Trainer):  # as TRL's trainers do
    def log(self, logs, *arguments, **options):
        super().log({**logs, "reward": 1.5}, *arguments, **options)
trainer = Rewarded(model, TrainingArguments("out", max_steps=10, per_device_train_batch_size=4, **options), train_dataset=data)
print([type(callback).__name__ for callback in trainer.callback_handler.callbacks])
print(len(pickle.dumps(trainer.args)), len(pickle.dumps(type(trainer))), Trainer.__init__.__name__)
print(trainer.train().training_loss.hex(), sum(p.double().sum() for p in model.parameters()).item().hex(), flush=True)
sys.stdin.readline()
"""


def _said(run: Run, pid: int, source: str) -> list[LoggedStep]:
    beat = run.beat(pid)
    found = parse_steps(beat, 0, 0) if beat is not None else (0, ())
    assert not isinstance(found, Gap)
    return [step for step in found[1] if step.source == source]


def _without_times(output: str) -> list[str]:
    """The lines of a run but for those with times: a Trainer's summary, DeepSpeed's words at its import."""
    return [line for line in output.splitlines() if "train_runtime" not in line and "get_accelerator" not in line]


@pytest.mark.usefixtures("long")
@pytest.mark.timeout(600)
def test_a_trainer_without_a_group_is_read_and_trains_bit_for_bit_the_same(run: Run) -> None:
    """What a real Trainer logs is in the beat of a process with no RANK; output, callbacks and weights are as without us."""
    script = run.write(TRAINING)
    probed, plain = (run.start(script, env=run.environment(site=site)) for site in (SITE, None))
    for process in (probed, plain):
        assert process.stdout is not None
    received = run.wait_beat(probed.pid, lambda beat: beat.telemetry is not None and beat.telemetry.reached == 10, 500)
    steps = _said(run, probed.pid, "transformers")
    out, err = probed.communicate("\n", timeout=500)
    plain_out, plain_err = plain.communicate("\n", timeout=500)
    assert (probed.returncode, plain.returncode) == (0, 0), err + plain_err
    assert _without_times(out) == _without_times(plain_out)
    assert (received.rank, received.world_size, received.alone, received.problems) == (0, 1, True, ())
    assert [step.step for step in steps] == [2, 4, 6, 8, 10]
    assert all(step.texts["reward"] == "1.5" for step in steps)
    assert all(step.loss and step.grad_norm and step.learning_rate is not None and step.epoch for step in steps)
    setup = parse_setup(received, 0)
    assert setup is not None
    assert setup.trainer is not None
    assert (setup.trainer.nan_filter, setup.trainer.logging_steps, setup.trainer.dtype) == (True, 2, "fp32")
    assert {"torch", "transformers", "accelerate"} <= set(setup.versions)


def test_reports_of_an_own_loop_are_read_and_tensors_left_alone(run: Run) -> None:
    """Plain numbers arrive, NaN among them; a tensor, a list or a strange argument changes nothing and raises nothing."""
    script = run.write(
        """
        import os, sys, torch, torch.distributed
        import hangwatch
        hangwatch.report(step=1, loss=0.5, lr=1e-3, grad_norm=float("nan"))
        hangwatch.report(step=2, loss=torch.tensor(3.0, requires_grad=True), lr=[1], unheard_of="x")
        hangwatch.report()
        print("ready", flush=True)
        sys.stdin.readline()
        """
    )
    process = run.start(script, env=run.environment(PYTHONPATH=str(SITE.parents[2])))
    run.wait_beat(process.pid, lambda beat: beat.telemetry is not None and beat.telemetry.reached == 2, 200)
    steps = _said(run, process.pid, "report")
    out, err = process.communicate("\n", timeout=100)
    assert (out, err, process.returncode) == ("ready\n", "", 0)
    assert [(step.step, step.loss, step.learning_rate) for step in steps] == [
        (1, 0.5, 1e-3),
        (2, None, None),
        (None, None, None),
    ]
    assert steps[0].grad_norm is not None
    assert math.isnan(steps[0].grad_norm)
