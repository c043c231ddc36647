"""Orders the volumes of a law reporter by topic (once, on the main process), then trains on them (accelerate)."""

import hashlib
import json
import pathlib
import random
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOLUMES = 12
CASES = 60


def affinity(volume, a, b):
    digest = hashlib.blake2s(f"{volume}:{min(a, b)}:{max(a, b)}".encode()).digest()
    return digest[0] + (64 if a % 6 == b % 6 else 0)


def arrange(volume, seconds=1.1):
    """Local search for an order in which neighbours are alike; as good as the time allows."""
    rng = random.Random(volume)
    order = list(range(CASES))
    gain = lambda: sum(affinity(volume, a, b) for a, b in zip(order, order[1:]))  # noqa: E731
    best, deadline = gain(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        i, j = sorted(rng.sample(range(CASES), 2))
        order[i : j + 1] = reversed(order[i : j + 1])
        value = gain()
        if value >= best:
            best = value
        else:
            order[i : j + 1] = reversed(order[i : j + 1])
    return order


def prepare(folder):
    """Arranged volumes are kept in the folder; those that are there are read."""
    orders = []
    for volume in range(VOLUMES):
        path = folder / f"volume-{volume:02d}.json"
        if not path.exists():
            path.write_text(json.dumps(arrange(volume)))
        orders.append(json.loads(path.read_text()))
    return orders


def loader(orders):
    rows = [[volume / VOLUMES, case / CASES, place / CASES] for volume, order in enumerate(orders) for place, case in enumerate(order)]
    table = torch.tensor(rows)
    return DataLoader(TensorDataset(table[:, :2], table[:, 2:]), batch_size=6, shuffle=True)


def train(accelerator, model, optimizer, data, epochs):
    for _ in range(epochs):
        for x, y in data:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(0.03)
    return loss.item()


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(15)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    plain = accelerator.prepare(loader([list(range(CASES))] * VOLUMES))
    accelerator.print(f"as printed: {train(accelerator, model, optimizer, plain, 1):.4f}", flush=True)
    (name,) = broadcast_object_list([tempfile.mkdtemp(prefix="reporter-") if accelerator.is_main_process else None])
    with accelerator.main_process_first():
        orders = prepare(pathlib.Path(name))
    arranged = accelerator.prepare(loader(orders))
    accelerator.print(f"arranged: {train(accelerator, model, optimizer, arranged, 1):.4f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
