"""Thirty steps; argument: ddp, fsdp1, fsdp2 or conv (convolution and BatchNorm under DDP, with autocast)."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

rank = int(os.environ["RANK"])
kind = sys.argv[1]
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
torch.backends.cudnn.enabled = False
dist.init_process_group("nccl")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.linear(x))) + x


if kind == "conv":
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 14 * 14, 100))
else:
    layers = (nn.Embedding(100, 32), Block(), Block(), nn.Linear(32, 100))
model = nn.Sequential(*layers).to(device)
if kind == "fsdp2":
    for child in model.children():
        fully_shard(child)
    fully_shard(model)
elif kind == "fsdp1":
    model = FullyShardedDataParallel(model)
else:
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(30):
    batch = torch.randn(4, 3, 16, 16) if kind == "conv" else torch.randint(0, 100, (8, 16))
    target = torch.randint(0, 100, (4,)) if kind == "conv" else batch
    with torch.autocast("cuda", torch.bfloat16, enabled=kind == "conv"):
        out = model(batch.to(device))
        loss = nn.functional.cross_entropy(out.flatten(0, -2), target.to(device).flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        loss.item()
        print(f"rank {rank}: step {step}\n", end="", flush=True)
dist.destroy_process_group()
print(f"rank {rank}: done\n", end="", flush=True)
