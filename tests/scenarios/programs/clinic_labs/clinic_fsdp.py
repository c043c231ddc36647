"""Pretraining of a small protein language model with fully_shard; the weights are exported now and then."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RESIDUES, LENGTH = 24, 48


class ProteinLM(nn.Module):
    def __init__(self, width=48, depth=1):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(depth)
        )
        self.residue = nn.Linear(width, RESIDUES)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.residue(hidden)


class Exporter:
    """Keeps the newest weights as one file that the wet lab's scripts can load."""

    def __init__(self, folder, every):
        self.folder, self.every = Path(folder), every
        self.folder.mkdir(parents=True, exist_ok=True)

    def maybe_export(self, model, step):
        if step % self.every or step == 0:
            return
        if dist.get_rank() == 0:
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(model, options=options)
            torch.save(dict(weights), self.folder / f"protein-{step:06d}.pt")
            print(f"step {step}: exported", flush=True)
        dist.barrier()


def masked_batch(generator, size=8):
    tokens = torch.randint(1, RESIDUES, (size, LENGTH), generator=generator)
    hidden = torch.rand(tokens.shape, generator=generator) < 0.15
    return tokens.masked_fill(hidden, 0), tokens, hidden


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = ProteinLM()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = os.path.join(tempfile.gettempdir(), f"protein-{os.environ['MASTER_PORT']}")
    exporter = Exporter(folder, every=30)
    generator = torch.Generator().manual_seed(rank)
    for step in range(200):
        inputs, targets, hidden = masked_batch(generator)
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits[hidden], targets[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        exporter.maybe_export(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
