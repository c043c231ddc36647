"""Query encoder of the archive search: InfoNCE on clicks, FSDP2; the serving team gets a copy of the weights every edition."""
import io
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def encoder(words=400, width=64, depth=3):
    layers = [nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(depth)]
    return nn.Sequential(nn.Embedding(words, width), *layers, nn.Linear(width, width))


class Exporter:
    """Full weights, as the serving team wants them."""

    def __init__(self, model):
        self.model = model
        self.sizes = {}

    def __call__(self, edition):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(self.model, options=options)
        blob = io.BytesIO()
        torch.save(weights, blob)
        self.sizes[edition] = len(blob.getvalue())
        print(f"edition {edition}: {self.sizes[edition] / 1e6:.2f} MB for serving", flush=True)


def clicks(rank, step, n=12):
    g = torch.Generator().manual_seed(7919 * rank + step)
    query = torch.randint(1, 400, (n, 8), generator=g)
    article = torch.cat([query, torch.randint(1, 400, (n, 24), generator=g)], 1)
    return query, article


def info_nce(model, query, article):
    q = F.normalize(model(query).mean(1), dim=-1)
    a = F.normalize(model(article).mean(1), dim=-1)
    return F.cross_entropy(q @ a.T / 0.05, torch.arange(len(q)))


def edition(model, optimizer, number, steps):
    for step in range(steps):
        loss = info_nce(model, *clicks(dist.get_rank(), 1000 * number + step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    torch.manual_seed(6)
    model = encoder()
    for layer in list(model)[1:-1]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    export = Exporter(model)
    for number in range(int(os.environ.get("EDITIONS", 8))):
        loss = edition(model, optimizer, number, steps=14)
        if dist.get_rank() == 0:
            print(f"edition {number}: loss {loss:.3f}", flush=True)
            if number % 3 == 2:
                export(number)
        dist.barrier()
    dist.destroy_process_group()


main()
