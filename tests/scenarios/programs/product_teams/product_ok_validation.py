"""Visual search. After every other epoch the main process finds the exact neighbours of all products, the others wait for it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

CATALOGUE, QUERIES = 60_000, 1500


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


@torch.no_grad()
def exact_recall(encoder, seconds=11.0):
    """Queries in chunks, as many as there are until the time is over, but no fewer than a quarter."""
    g = torch.Generator().manual_seed(1)
    products = torch.randn(CATALOGUE, 48, generator=g)
    vectors = torch.cat([encoder(part) for part in products.split(5000)])
    start, hits, done = time.monotonic(), 0, 0
    while done < QUERIES // 4 or time.monotonic() - start < seconds:
        rows = torch.randint(CATALOGUE, (25,), generator=g)
        found = (encoder(products[rows] + 0.05 * torch.randn(25, 48, generator=g)) @ vectors.T).topk(5).indices
        hits += (found == rows[:, None]).any(1).sum().item()
        done += 25
    return hits / done


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank + 10)
    for epoch in range(2):
        for _ in range(40):
            x = torch.randn(32, 48, generator=g)
            time.sleep(0.03)
            optimizer.zero_grad()
            similarity = model(x) @ model.module(x + 0.05 * torch.randn(32, 48, generator=g)).T
            loss = nn.functional.cross_entropy(similarity * 10, torch.arange(32))
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
            if epoch % 2 == 1:
                print(f"epoch {epoch}: recall@5 {exact_recall(model.module):.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
