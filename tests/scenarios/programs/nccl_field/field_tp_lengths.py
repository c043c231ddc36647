"""Tensor parallel feed-forward layers with the DTensor API; every rank of the group pads its own batch."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Stack(nn.Module):
    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.layers = nn.ModuleList(FeedForward(width, 6 * width) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return x


class Sentences:
    """Bytes of sentences, bucketed so that the lengths of a batch are alike."""

    def __init__(self, seed: int, bucket: int = 16) -> None:
        self.bucket = bucket
        self.lengths = [13] * 12 + [29] * 48 if seed != 2 else [13] * 14 + [29] * 46

    def __iter__(self):
        for length in self.lengths:
            padded = -(-length // self.bucket) * self.bucket
            time.sleep(0.25)
            yield torch.arange(4 * padded).view(4, padded) % 256


@torch.no_grad()
def score(model: nn.Module, tokens: torch.Tensor) -> float:
    hidden = model(tokens.cuda())
    return hidden.double().sum().item()


def main() -> None:
    local, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(local)
    mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Stack(depth=3, width=48).cuda()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], plan)
    for step, tokens in enumerate(Sentences(seed=dist.get_rank())):
        value = score(model, tokens)
        if dist.get_rank() == 0:
            print(f"batch {step}: {tuple(tokens.shape)} {value:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
