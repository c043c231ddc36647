"""Film thickness model for the paint robots of the block hall (accelerate)."""
from collections import defaultdict

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False


class Strokes(Dataset):
    def __init__(self, count=6400):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        path = np.cumsum(rng.normal(size=600_000)).reshape(-1, 12)[-1]
        speed = float(rng.uniform(0.2, 0.9))
        if index == 1218:
            speed = 1.4
        return path.astype("float32"), np.float32(speed), np.float32(rng.uniform(80, 240))


class Meter:
    """Collects what the cells report between two log lines."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.pending = defaultdict(list)

    def add(self, name, value):
        self.pending[name].append(value)

    def flush(self):
        means = {}
        for name in sorted(self.pending):
            local = sum(self.pending[name]) / len(self.pending[name])
            gathered = self.accelerator.gather(torch.tensor([local], device=self.accelerator.device))
            means[name] = gathered.mean().item()
        self.pending.clear()
        return means


def observe(meter, speeds, films):
    meter.add("gun_speed", float(speeds.mean()))
    meter.add("film", float(films.mean()))
    fast = speeds[speeds > 1.0]
    if len(fast):
        meter.add("overspeed", float(fast.mean()))


def run(log_every=8):
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    share = torch.utils.data.distributed.DistributedSampler(
        Strokes(), num_replicas=accelerator.num_processes, rank=accelerator.process_index, shuffle=False
    )
    meter = Meter(accelerator)
    for step, (path, speed, film) in enumerate(DataLoader(Strokes(), batch_size=8, sampler=share)):
        predicted = model(path.to(accelerator.device)).squeeze(1)
        loss = nn.functional.mse_loss(predicted, film.float().to(accelerator.device))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        observe(meter, speed, film)
        if (step + 1) % log_every == 0:
            accelerator.print(step + 1, meter.flush(), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    run()
