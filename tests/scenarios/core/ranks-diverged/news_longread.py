"""Summaries of long reads: full attention over whole articles with accelerate; token counts weigh the loss."""
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn


class LongReads:
    """Articles by length. Live blogs run for days and are longer than anything else."""

    lengths = (60, 90, 120, 200, 150, 80)

    def __init__(self, process, batch):
        self.g = torch.Generator().manual_seed(process)
        self.batch = batch
        self.live_blogs = {41: 900_000} if process == 2 else {}

    def __iter__(self):
        for i in range(160):
            n = self.live_blogs.get(i, self.lengths[i % len(self.lengths)])
            yield torch.randint(1, 300, (self.batch, n), generator=self.g)


class Summariser(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.embed, self.heads = nn.Embedding(300, width), heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 300))

    def forward(self, ids):
        x = self.embed(ids)
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.ff((weights @ v).transpose(1, 2).flatten(2))


class Run:
    def __init__(self):
        self.accelerator = Accelerator(cpu=True)
        set_seed(4)
        model = Summariser()
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
        self.left_out = 0

    def step(self, ids):
        tokens = self.accelerator.gather(torch.tensor([ids.numel()])).sum()
        try:
            logits = self.model(ids)
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
            self.accelerator.backward(loss * self.accelerator.num_processes / tokens)
        except RuntimeError as error:
            if "allocate memory" not in str(error):
                raise
            self.left_out += 1
            self.optimizer.zero_grad()
            return None
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item() / ids.numel()

    def fit(self, reads):
        for i, ids in enumerate(reads):
            value = self.step(ids)
            time.sleep(0.03)
            if i % 20 == 0 and value is not None:
                self.accelerator.print(f"read {i}: {value:.3f} per token, {self.left_out} left out")


if __name__ == "__main__":
    run = Run()
    run.fit(LongReads(run.accelerator.process_index, batch=2))
    run.accelerator.print("finished")
