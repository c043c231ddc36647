"""Predict calving from collar accelerometers with transformers' Trainer: masked reconstruction around rumination bouts."""
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

WINDOW = 256
PER_DEVICE = 8


class NoBouts(ValueError):
    """None of the windows of a batch holds a rumination bout to anchor on."""


class CollarDays(Dataset):
    """Windows of three-axis acceleration in the order in which the collars were read out."""

    def __init__(self, days=1200):
        self.days = days
        self.rest_days = {286}  # the vet's round: the herd stands in the crush all day

    def __len__(self):
        return self.days * PER_DEVICE

    def __getitem__(self, i):
        day = i // PER_DEVICE
        gen = torch.Generator().manual_seed(i)
        signal = torch.randn(3, WINDOW, generator=gen).cumsum(1)
        signal = (signal - signal.mean(1, keepdim=True)) / (signal.std(1, keepdim=True) + 1e-4)
        spectrum = torch.fft.rfft(signal.repeat(1, 64)).abs()[:, : WINDOW // 2]
        bouts = torch.rand(WINDOW, generator=gen) < (0.0 if day in self.rest_days else 0.15)
        return {"signal": signal, "spectrum": spectrum.log1p(), "bouts": bouts}


class CollarNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(3, 32, 9, padding=4)
        self.body = nn.Sequential(nn.GELU(), nn.Conv1d(32, 32, 9, padding=4), nn.GELU())
        self.tone = nn.Linear(3 * (WINDOW // 2), 32)
        self.out = nn.Conv1d(32, 3, 1)

    def forward(self, signal, spectrum):
        tone = self.tone(spectrum.flatten(1)).unsqueeze(-1)
        return self.out(self.body(self.stem(signal)) + tone)


class CollarTrainer(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        bouts = inputs["bouts"].unsqueeze(1)
        if not bouts.any():
            raise NoBouts("no bouts in this batch")
        guess = model(inputs["signal"].masked_fill(bouts, 0.0), inputs["spectrum"])
        loss = ((guess - inputs["signal"]) ** 2 * bouts).sum() / (3 * bouts.sum())
        return (loss, guess) if return_outputs else loss

    def training_step(self, model, inputs, *args, **kwargs):
        try:
            return super().training_step(model, inputs, *args, **kwargs)
        except NoBouts:
            return torch.zeros((), device=self.args.device)


class Progress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            print(f"step {state.global_step}: {logs}", flush=True)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    torch.manual_seed(8)
    with tempfile.TemporaryDirectory(prefix="collar-") as folder:
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=PER_DEVICE, max_steps=380,
            logging_steps=10, save_strategy="no", report_to=[], learning_rate=2e-3, remove_unused_columns=False, disable_tqdm=True,
        )
        CollarTrainer(model=CollarNet(), args=arguments, train_dataset=CollarDays(), callbacks=[Progress()]).train()
