"""Float glass inspection: a classifier of bubbles, stones and reams, scored on the panels of the last week."""
import os
from typing import Callable

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
CLASSES = ("clear", "bubble", "stone", "ream")
METRICS: dict[str, Callable] = {}


def metric(name: str):
    def register(function):
        METRICS[name] = function
        return function

    return register


@metric("accuracy")
def accuracy(scores: np.ndarray, truth: np.ndarray) -> float:
    return float((scores.argmax(1) == truth).mean())


@metric("false alarms")
def false_alarms(scores: np.ndarray, truth: np.ndarray) -> float:
    clear = truth == 0
    return float((scores.argmax(1)[clear] != 0).mean()) if clear.any() else 0.0


def scan(panel: int, size: int = 24) -> np.ndarray:
    """Dark-field image of a panel, smoothed as the line camera does it."""
    rng = np.random.default_rng(panel)
    image = rng.random((size, size))
    for _ in range(panel % 4 * 5):
        image = 0.25 * (np.roll(image, 1, 0) + np.roll(image, -1, 0) + np.roll(image, 1, 1) + np.roll(image, -1, 1))
    return image.astype(np.float32).ravel()


def batch_of(panels) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.from_numpy(np.stack([scan(int(p)) for p in panels]))
    return images.cuda(), torch.tensor([int(p) % 4 for p in panels], device="cuda")


def average_gradients(model: nn.Module) -> None:
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p).mul_(1 / dist.get_world_size()))
        offset += p.numel()


@torch.no_grad()
def evaluate(model: nn.Module, panels: np.ndarray) -> dict[str, float]:
    world = dist.get_world_size()
    mine = np.array_split(panels, world)[dist.get_rank()]
    images, truth = batch_of(mine)
    table = torch.cat([model(images), truth.float().unsqueeze(1)], dim=1)
    parts = [torch.empty_like(table) for _ in range(world)]
    dist.all_gather(parts, table)
    everything = np.concatenate([part.cpu().numpy() for part in parts])
    return {name: function(everything[:, :-1], everything[:, -1]) for name, function in METRICS.items()}


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(576, 32), nn.ReLU(), nn.Linear(32, len(CLASSES))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    week = np.arange(100_000, 100_101)
    for epoch in range(6):
        order = np.random.default_rng(epoch).permutation(1920)
        for step, chunk in enumerate(order.reshape(30, world, -1)[:, rank]):
            images, truth = batch_of(np.tile(chunk, 8))
            loss = nn.functional.cross_entropy(model(images), truth)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            if step % 6 == 5:
                value = loss.item()
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {value:.3f}", flush=True)
        results = evaluate(model, week)
        if rank == 0:
            print(f"epoch {epoch}:", {k: round(v, 3) for k, v in results.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
