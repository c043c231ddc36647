"""Estimates of repair costs. Pricing rules note what they saw; notes are averaged over the workers every few steps."""
import random
import time
from collections import defaultdict

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.enabled = False
LOG_EVERY = 12


class Notes:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.pending = defaultdict(list)

    def add(self, name, value):
        self.pending[name].append(float(value))

    def flush(self):
        result = {}
        for name in sorted(self.pending):
            values = self.pending[name]
            mean = torch.tensor(sum(values) / len(values), device=self.accelerator.device)
            result[name] = self.accelerator.gather(mean).mean().item()
        self.pending.clear()
        return result


def cleaning_rule(job, notes):
    notes.add("cleaning", job["hours"])
    return 40 * job["hours"]


def complication_rule(job, notes):
    if job["complication"] == "repeater":
        notes.add("repeater", job["hours"])
        return 300.0
    return 0.0


RULES = (cleaning_rule, complication_rule)


def jobs(index, seen):
    rng = random.Random(1000 * index + seen)
    for _ in range(8):
        rare = index == 0 and seen > 40
        yield {"hours": rng.uniform(0.5, 6), "complication": "repeater" if rare else rng.choice(["date", "none"])}


def main():
    accelerator = Accelerator()
    torch.manual_seed(7)
    photos = TensorDataset(torch.rand(1500, 50), torch.rand(1500, 1))
    model = nn.Sequential(nn.Linear(50, 32), nn.SiLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(photos, batch_size=5)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    notes = Notes(accelerator)
    for step, (photo, price) in enumerate(loader, start=1):
        offers = [sum(rule(job, notes) for rule in RULES) for job in jobs(accelerator.process_index, step)]
        time.sleep(0.05)
        shift = sum(offers) / len(offers) / 1000
        loss = nn.functional.mse_loss(model(photo), price + shift)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            means = notes.flush()
            accelerator.print(f"step {step}", {k: round(v, 2) for k, v in means.items()})
    accelerator.end_training()


if __name__ == "__main__":
    main()
