"""Pretrains a small encoder for protein sequences with FSDP2 and keeps Adam's second moments for influence scores."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

AMINO_ACIDS = 25


class Encoder(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(AMINO_ACIDS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )
        self.head = nn.Linear(width, AMINO_ACIDS)

    def forward(self, residues):
        x = self.embed(residues)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def save_second_moments(optimizer, names, path):
    """One tensor for each parameter, in the layout of an optimizer.pt."""
    moments = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            moment = optimizer.state[parameter]["exp_avg_sq"]
            if isinstance(moment, DTensor):
                moment = moment.full_tensor()
            moments[names[parameter]] = moment
    torch.save(moments, path)


def main():
    dist.init_process_group("gloo")
    global_rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(7)
    model = Encoder()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    names = {parameter: name for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    out = Path(tempfile.mkdtemp(prefix="moments-"))

    for step in range(1, 41):
        residues = torch.randint(AMINO_ACIDS, (4, 48))
        logits = model(residues)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), residues.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 15 == 0:
            if global_rank == 0:
                save_second_moments(optimizer, names, out / f"optimizer-{step}.pt")
                print(f"step {step}: loss {loss.item():.3f}, moments written", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
