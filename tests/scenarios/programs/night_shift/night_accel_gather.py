"""accelerate: text classification without a trainer, logged every 10 steps."""
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class History:
    """What is shown in the console: a line for the main process."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.losses = []

    def append(self, loss):
        self.losses.append(loss.detach())

    @property
    def summary(self):
        recent = torch.stack(self.losses[-10:])
        return self.accelerator.gather(recent).mean().item()

    def show(self, step, rate):
        if self.accelerator.is_main_process:
            print(f"step {step} loss {self.summary:.4f} rate {rate:.2e}", flush=True)


def dataset(count=6000):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 200, (count, 12), generator=generator)
    return TensorDataset(ids, (ids.float().mean(1) > 100).long())


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(200, 32)
        self.classify = nn.Linear(32, 2)

    def forward(self, ids):
        return self.classify(self.embed(ids))


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Bag()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 200, 0.5)
    loader = DataLoader(dataset(), batch_size=8, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    history = History(accelerator)
    for epoch in range(2):
        for step, (ids, labels) in enumerate(loader, 1):
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(ids), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            history.append(loss)
            time.sleep(0.05)
            if step % 10 == 0:
                history.show(step, scheduler.get_last_lr()[0])
    accelerator.end_training()


if __name__ == "__main__":
    main()
