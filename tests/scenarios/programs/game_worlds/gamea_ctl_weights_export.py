"""Dialogue model for non-player characters, sharded with FSDP2. Half-way the weights are exported for the game client, quantised group by group."""
import os
import struct
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Talker(nn.Module):
    def __init__(self, words=512, width=192, depth=3):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)) for _ in range(depth))
        self.out = nn.Linear(width, words)

    def forward(self, line):
        h = self.words(line).cumsum(1) / 8
        for layer in self.layers:
            h = h + layer(h)
        return self.out(h)


def best_scale(group, tries):
    """The scale with the smallest error for 4-bit weights."""
    scales = torch.linspace(0.3, 1.1, tries) * group.abs().max() / 7
    rounded = (group[None] / scales[:, None]).round().clamp(-8, 7) * scales[:, None]
    return scales[(rounded - group[None]).square().sum(1).argmin()].item()


def export(state, path, tries, group=512):
    with open(path, "wb") as file:
        for name, weight in state.items():
            flat = weight.float().flatten()
            for start in range(0, len(flat), group):
                part = flat[start : start + group]
                scale = best_scale(part, tries)
                file.write(struct.pack("<f", scale))
                file.write((part / max(scale, 1e-8)).round().to(torch.int8).numpy().tobytes())
            file.flush()
            os.fsync(file.fileno())
            print(f"export: {name}, {file.tell() >> 10} KiB", flush=True)


def affordable_tries(seconds=13.0, groups=1700, probe=2000):
    """How finely the scales can be searched in the time that a nightly export may take."""
    part, began = torch.randn(512), time.monotonic()
    for _ in range(40):
        best_scale(part, probe)
    each = (time.monotonic() - began) / 40
    return max(100, min(12_000, round(probe * seconds / groups / each)))


def train(model, optim, rng, steps, label):
    for step in range(steps):
        line = torch.randint(512, (12, 17), generator=rng)
        loss = nn.functional.cross_entropy(model(line[:, :-1]).flatten(0, 1), line[:, 1:].flatten())
        loss.backward()
        optim.step()
        optim.zero_grad()
        if step % 25 == 0 and dist.get_rank() == 0:
            print(f"{label} step {step} loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model, mesh = Talker(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if hasattr(module, "set_force_sum_reduction_for_comms"):
            module.set_force_sum_reduction_for_comms(True)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(rank)
    train(model, optim, rng, 100, "first half")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        export(state, os.path.join(tempfile.mkdtemp(prefix="talker-"), "client.bin"), affordable_tries())
    dist.barrier()
    train(model, optim, rng, 100, "second half")
    dist.barrier()
    dist.destroy_process_group()


main()
