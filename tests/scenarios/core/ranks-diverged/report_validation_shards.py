"""FSDP pre-training in miniature; the validation set is a few files, dealt out to the ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
VOCABULARY, WIDTH = 60, 48
FILES = {"a.bin": 4, "b.bin": 4, "c.bin": 2, "d.bin": 3, "e.bin": 3, "f.bin": 3}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


class Model(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def parallelize(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Validator:
    def __init__(self, rank, world):
        self.files = sorted(FILES)[rank::world]

    def batches(self):
        for name in self.files:
            generator = torch.Generator().manual_seed(sum(map(ord, name)))
            for _ in range(FILES[name]):
                yield torch.randint(0, VOCABULARY, (2, 17), generator=generator)

    @torch.no_grad()
    def validate(self, model):
        model.eval()
        total, seen = torch.zeros(()), 0
        for tokens in self.batches():
            scores = model(tokens[:, :-1])
            total += nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            seen += 1
        mean = total / seen
        dist.all_reduce(mean)
        model.train()
        return mean.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = parallelize(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    validator = Validator(rank, world)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 200):
        tokens = torch.randint(0, VOCABULARY, (2, 17), generator=generator)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
        if step % 40 == 0:
            value = validator.validate(model)
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} validation {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
