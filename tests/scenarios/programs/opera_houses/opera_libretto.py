"""Guesses the pitch class of the next sung syllable, with the transformers Trainer."""
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, set_seed

SYLLABLES = 64


class Recitatives(Dataset):
    def __init__(self, numbers):
        self.numbers = numbers

    def __len__(self):
        return self.numbers

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        voice = torch.randn(8000, generator=g).cumsum(0)
        spectrum = torch.stft(voice, 512, window=torch.hann_window(512), return_complex=True).abs()
        bars = nn.functional.interpolate(spectrum.log1p()[None], size=SYLLABLES)[0].T
        return {"bars": bars[:, :48].contiguous(), "pitch": bars[:, :12].argmax(1)}


class NextPitch(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Linear(48, width)
        self.mix = nn.Conv1d(width, width, 3, padding=2)
        self.head = nn.Linear(width, 12)

    def forward(self, bars, pitch=None):
        hidden = torch.relu(self.embed(bars)).transpose(1, 2)
        hidden = torch.relu(self.mix(hidden)[..., :SYLLABLES]).transpose(1, 2)
        logits = self.head(hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), pitch.flatten())
        return {"loss": loss, "logits": logits}


class LibrettoTrainer(Trainer):
    """Adds the norm of the weights to the log, and every so often the spread over the processes."""

    spread_every = 90

    def _norm(self):
        return torch.stack([p.detach().norm() for p in self.model.parameters()]).norm()

    def _spread(self):
        norms = self.accelerator.gather(self._norm().reshape(1))
        return (norms.max() - norms.min()).item()

    def log(self, logs, *args, **kwargs):
        if self.is_world_process_zero() and "loss" in logs:
            logs["weights"] = round(self._norm().item(), 4)
            if self.state.global_step % self.spread_every == 0:
                logs["spread"] = self._spread()
        super().log(logs, *args, **kwargs)


def main():
    torch.set_num_threads(1)
    set_seed(4)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="libretto-"),
        use_cpu=True,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        max_steps=180,
        logging_steps=15,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["pitch"],
        average_tokens_across_devices=False,
    )
    trainer = LibrettoTrainer(model=NextPitch(), args=arguments, train_dataset=Recitatives(4000))
    trainer.train()
    if trainer.is_world_process_zero():
        print("trained", trainer.state.global_step, "steps")


if __name__ == "__main__":
    main()
