"""Nanopore reads with accelerate: pairwise attention over a read, a step that survives what does not fit into memory."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Reads(Dataset):
    """Signals of reads, and how many samples each has. A few are concatemers."""

    def __init__(self, count=240, concatemers=(203,)):
        generator = torch.Generator().manual_seed(11)
        self.signal = torch.randn(count, 32, generator=generator)
        self.length = torch.full((count,), 400)
        self.length[list(concatemers)] = 30_000_000

    def __len__(self):
        return len(self.signal)

    def __getitem__(self, index):
        time.sleep(0.02)
        return self.signal[index], self.length[index]


class Basecaller(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(32, 48)
        self.decode = nn.Linear(48, 5)

    def forward(self, signal, length):
        longest = int(length.max())
        distance = torch.empty(longest, longest)
        decay = torch.exp(-distance[:1, :1].abs().clamp(max=1.0).nan_to_num())
        return self.decode(torch.tanh(self.encode(signal)) * decay.clamp(min=0.5))


class Finetuning:
    def __init__(self):
        self.accelerator = Accelerator(cpu=True)
        torch.manual_seed(0)
        model, loader = Basecaller(), DataLoader(Reads(), batch_size=3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.dropped = 0

    def step(self, signal, length):
        bases = self.model(signal, length)
        loss = nn.functional.cross_entropy(bases, signal[:, :5].argmax(1))
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.optimizer.step()
        return loss.item()

    def epoch(self):
        losses = []
        for signal, length in self.loader:
            try:
                losses.append(self.step(signal, length))
            except RuntimeError as error:
                if "memory" not in str(error):
                    raise
                self.dropped += 1
        return sum(losses) / len(losses)

    def run(self, epochs):
        for number in range(epochs):
            mean = self.epoch()
            self.accelerator.wait_for_everyone()
            self.accelerator.print(f"epoch {number}: loss {mean:.4f}, dropped {self.dropped}")


if __name__ == "__main__":
    Finetuning().run(epochs=40)
