"""Thesis: sequence model of protein families, sharded with fully_shard."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RESIDUES = 21


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv1d(width, width, 5, padding=2)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + torch.relu(self.mix(x.transpose(1, 2)).transpose(1, 2)))


class ProteinModel(nn.Module):
    def __init__(self, width: int = 24, depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.out = nn.Linear(width, RESIDUES)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def shard(model: ProteinModel) -> ProteinModel:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def masked_batch(rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(1, RESIDUES, (8, 40), generator=rng)
    tokens[:, 1::2] = tokens[:, ::2]
    masked = tokens.clone()
    masked[torch.rand(tokens.shape, generator=rng) < 0.15] = 0
    return masked, tokens


def save_best(model: nn.Module, loss: float) -> None:
    if dist.get_rank() == 0:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(model, options=options)
        path = os.path.join(tempfile.gettempdir(), f"protein-{os.environ['MASTER_PORT']}.pt")
        torch.save({"model": state, "loss": loss}, path)
        print(f"saved {path}", flush=True)
    dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = shard(ProteinModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 400):
        masked, tokens = masked_batch(rng)
        loss = nn.functional.cross_entropy(model(masked).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 25 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            save_best(model, mean.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
