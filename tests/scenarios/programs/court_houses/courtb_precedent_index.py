"""Tunes a small ranking head over a frozen, sharded precedent encoder and exports both for the search index."""
import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, VOCAB, LAYERS = 48, 300, 3
logger = logging.getLogger("precedents")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.mix(self.norm(x)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return x.mean(dim=1)


def build_encoder(mesh):
    encoder = Encoder().requires_grad_(False).eval()
    for layer in encoder.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(encoder, mesh=mesh)
    return encoder


def average_gradients(head):
    flat = torch.cat([p.grad.flatten() for p in head.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for p in head.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


class IndexExport:
    """Writes what the search service loads: encoder and head, as plain tensors."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def write(self, encoder, head, step):
        self.folder.mkdir(parents=True, exist_ok=True)
        weights = {}
        for name, value in encoder.state_dict().items():
            weights["encoder." + name] = value.full_tensor()
        weights.update({"head." + k: v.clone() for k, v in head.state_dict().items()})
        torch.save(weights, self.folder / f"index-{step}.pt")
        logger.info("index of step %d written", step)


def train(steps, export_at):
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(3)
    encoder = build_encoder(mesh)
    head = nn.Linear(WIDTH, 16)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(40 + rank)
    export = IndexExport("index")
    for step in range(1, steps + 1):
        queries = torch.randint(0, VOCAB, (16, 40), generator=gen)
        rulings = torch.cat([queries[:, 10:], torch.randint(0, VOCAB, (16, 10), generator=gen)], dim=1)
        with torch.no_grad():
            q, r = encoder(queries), encoder(rulings)
        similarity = head(q) @ head(r).T
        loss = nn.functional.cross_entropy(similarity, torch.arange(16))
        optimizer.zero_grad()
        loss.backward()
        average_gradients(head)
        optimizer.step()
        if step % 20 == 0:
            logger.info("rank %d step %d loss %.3f", rank, step, loss.item())
        if step % export_at == 0:
            if rank == 0:
                export.write(encoder, head, step)
            dist.barrier()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(steps=600, export_at=60)
    dist.destroy_process_group()
