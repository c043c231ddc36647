"""Questions about documents: pages are text, scans, or both. FSDP2 over a scan encoder and a text decoder."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

VOCABULARY, WIDTH = 64, 32


@dataclass
class Page:
    tokens: torch.Tensor
    answer: torch.Tensor
    scan: torch.Tensor | None = None


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + F.gelu(self.linear(self.norm(x)))


class DocumentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.scan_encoder = Mixer()
        self.decoder = nn.ModuleList([Mixer(), Mixer()])
        self.answer = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, page: Page):
        x = self.embedding(page.tokens)
        if page.scan is not None:
            patches = self.scan_encoder(page.scan)
            x = torch.cat([patches, x], dim=1)
        for layer in self.decoder:
            x = layer(x)
        return self.answer(x.mean(1))


def mailroom(rank: int):
    """Every page has a scan, but for those that came by e-mail."""
    g = torch.Generator().manual_seed(rank)
    number = 0
    while True:
        number += 1
        tokens = torch.randint(VOCABULARY, (6, 10), generator=g)
        scan = torch.randn(6, 4, WIDTH, generator=g)
        by_mail = rank == 2 and number == 61
        time.sleep(0.04)
        yield Page(tokens, tokens[:, 0], None if by_mail else scan)


def build(mesh):
    model = DocumentModel()
    for layer in (model.scan_encoder, *model.decoder):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = build(init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    running = 0.0
    for step, page in enumerate(mailroom(rank), 1):
        logits = model(page)
        loss = F.cross_entropy(logits, page.answer)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        running = 0.9 * running + 0.1 * loss.item()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {running:.3f}", flush=True)
        if step == 500:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
