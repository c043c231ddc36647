"""Fine-tune a peptide generator under FSDP2, and sample peptides from it after each round of training."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
RESIDUES, STOP, LONGEST = 20, 20, 18


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.update = nn.Linear(width, width)

    def forward(self, hidden):
        return hidden + torch.tanh(self.update(hidden))


class PeptideModel(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES + 1, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.out = nn.Linear(width, RESIDUES + 1)

    def forward(self, tokens):
        hidden = self.embed(tokens).cumsum(1)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden)


class Sampler:
    """Greedy continuation of a scaffold. A scaffold fixes the residues at its positions, and may end the peptide."""

    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def __call__(self, scaffold):
        tokens = torch.tensor([[scaffold[0]]])
        while tokens.shape[1] < LONGEST:
            logits = self.model(tokens)[0, -1]
            position = tokens.shape[1]
            fixed = scaffold.get(position)
            residue = fixed if fixed is not None else int(logits[:RESIDUES].argmax())
            tokens = torch.cat([tokens, torch.tensor([[residue]])], 1)
            if residue == STOP:
                break
        return tokens[0].tolist()


def scaffold_for(rank, round_):
    scaffold = {0: rank + 3, 4: 7, LONGEST - 1: STOP}
    if rank == 1 and round_ == 1:
        scaffold = {0: 5, 7: STOP}
    return scaffold


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = PeptideModel()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sample = Sampler(model)
    generator = torch.Generator().manual_seed(rank)
    for round_ in range(30):
        for _ in range(8):
            time.sleep(0.03)
            tokens = torch.randint(0, RESIDUES, (8, 16), generator=generator)
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        length = torch.tensor([float(len(sample(scaffold_for(rank, round_))))])
        dist.all_reduce(length)
        if rank == 0:
            print(f"round {round_}: mean length {length.item() / world:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
