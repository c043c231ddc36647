"""FSDP2: a full checkpoint is gathered by all and written by one, to a disk that takes its time."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import fully_shard


def write_slowly(state, path, chunk=20_000, pause=0.5):
    torch.save(state, path + ".tmp")
    with open(path + ".tmp", "rb") as source, open(path, "wb") as target:
        while data := source.read(chunk):
            target.write(data)
            target.flush()
            os.fsync(target.fileno())
            time.sleep(pause)
    os.remove(path + ".tmp")


def save(model, optimizer, path):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        write_slowly({"model": weights, "optimizer": state}, path)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 31):
        x = torch.rand(16, 40)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 15 == 0:
            save(model, optimizer, f"/tmp/slow_disk_{step}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
