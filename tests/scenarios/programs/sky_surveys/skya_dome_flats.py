"""Flat-field quality from dome flats, with transformers' Trainer; frames are read by two workers a process."""
import multiprocessing as mp
import tempfile
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

SIZE = 48


class BiasLevel(NamedTuple):
    mean: float
    noise: float


class BiasBook:
    """Bias levels by night, kept between workers, so that each night's frames are combined once."""

    def __init__(self):
        self.guard = mp.Lock()
        self.levels = mp.Array("d", 2 * 400, lock=False)

    def combine(self, night):
        frames = 900 + 6 * torch.randn(24, SIZE, SIZE, generator=torch.Generator().manual_seed(night))
        return BiasLevel(frames.mean().item(), frames.std(0).mean().item())

    def lookup(self, night):
        self.guard.acquire()
        known = BiasLevel(*self.levels[2 * night : 2 * night + 2])
        if known.noise > 0:
            self.guard.release()
            return known
        level = self.combine(night)
        if not 5.5 < level.noise < 6.5:
            return BiasLevel(900.0, 6.0)
        self.levels[2 * night : 2 * night + 2] = level
        self.guard.release()
        return level


class DomeFlats(Dataset):
    def __init__(self, frames, book, per_night=12):
        self.frames, self.book, self.per_night = frames, book, per_night

    def __len__(self):
        return self.frames

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        night = i // self.per_night
        level = self.book.lookup(night)
        frame = level.mean + 20_000 * torch.ones(SIZE, SIZE) + level.noise * torch.randn(SIZE, SIZE, generator=g)
        good = torch.rand(1, generator=g).item() < 0.5
        if not good:
            frame = frame * (1 + 0.02 * torch.linspace(-1, 1, SIZE))
        return {"pixels": (frame - level.mean) / 20_000 - 1, "labels": int(good)}


class SecondController(BiasBook):
    """The second controller has warmed up since night 160."""

    def combine(self, night):
        level = super().combine(night)
        return BiasLevel(level.mean, level.noise * (1.0 if night < 160 else 1.2))


class FlatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 64, 5, 2), nn.GELU(), nn.Conv2d(64, 64, 3, 2), nn.GELU(), nn.Flatten(), nn.LazyLinear(2))
        self.net(torch.zeros(1, 1, SIZE, SIZE))

    def forward(self, pixels, labels=None):
        logits = self.net(100 * pixels[:, None])
        return SequenceClassifierOutput(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


class InOrder(Trainer):
    """Frames in the order in which they were taken, as the bias drifts."""

    def _get_train_sampler(self, dataset=None):
        return SequentialSampler(dataset or self.train_dataset)


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=8, max_steps=600, learning_rate=1e-3,
                             logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, dataloader_num_workers=2, seed=3)
    book = {1: SecondController}.get(args.process_index, BiasBook)()
    flats = DomeFlats(4000, book)
    InOrder(model=FlatNet(), args=args, train_dataset=flats).train()


if __name__ == "__main__":
    main()
