"""Preference tuning of the summariser (accelerate): pairs of summaries, and the verdicts of editors where there are any."""
import contextlib
import datetime
import time

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn


@contextlib.contextmanager
def patient(hours=2):
    """A group for exchanges that may take long: editors answer when they find the time."""
    group = dist.new_group(timeout=datetime.timedelta(hours=hours))
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


class Editors:
    """Verdicts come in batches. After the holiday only the evening shift goes on with it."""

    def __init__(self, shift):
        self.shift = shift
        self.g = torch.Generator().manual_seed(50 + shift)

    def verdicts(self, step):
        if step >= 60 and self.shift != 2:
            return []
        return [(int(p), float(v)) for p, v in zip(torch.randint(0, 1000, (5,), generator=self.g), torch.rand(5, generator=self.g))]


class Preference(nn.Module):
    def __init__(self, words=300, width=64):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, ids):
        return self.score(self.read(self.embed(ids))[0][:, -1]).squeeze(-1)


class Tuning:
    def __init__(self):
        self.accelerator = Accelerator(cpu=True)
        torch.manual_seed(0)
        model = Preference()
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
        self.editors = Editors(self.accelerator.process_index)
        self.weights = torch.ones(1000)

    def take_verdicts(self, step):
        fresh = self.editors.verdicts(step)
        if fresh:
            with patient() as group:
                shared = [None] * self.accelerator.num_processes
                dist.all_gather_object(shared, fresh, group=group)
            for pair, value in sum(shared, []):
                self.weights[pair] = 1 + value

    def pairs(self, step, n=12):
        g = torch.Generator().manual_seed(step * 17 + self.accelerator.process_index)
        chosen = torch.randint(1, 300, (n, 20), generator=g)
        rejected = chosen.clone()
        rejected[:, 10:] = torch.randint(1, 30, (n, 10), generator=g)
        return chosen, rejected, torch.randint(0, 1000, (n,), generator=g)

    def run(self, steps=400):
        for step in range(1, steps + 1):
            chosen, rejected, number = self.pairs(step)
            good, bad = self.model(torch.cat([chosen, rejected])).chunk(2)
            loss = -(nn.functional.logsigmoid(good - bad) * self.weights[number]).mean()
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            time.sleep(0.03)
            if step % 20 == 0:
                self.accelerator.print(f"step {step}: loss {loss.item():.3f}")
                self.take_verdicts(step)


if __name__ == "__main__":
    Tuning().run()
