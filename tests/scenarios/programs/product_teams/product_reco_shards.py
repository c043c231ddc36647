"""Sequential recommender, trained on shards of a click log. Each rank reads its own shards."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)

ITEMS, SHARDS, ROWS = 100, 8, 160


def write_click_log(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        g = torch.Generator().manual_seed(shard)
        rows = torch.randint(ITEMS, (ROWS, 6), generator=g)
        torch.save(rows, folder / f"clicks-{shard:03d}.pt")


class ClickLog(IterableDataset):
    def __init__(self, folder: Path, rank: int, world: int):
        self.files = sorted(folder.glob("clicks-*.pt"))[rank::world]

    def __iter__(self):
        for file in self.files:
            for row in torch.load(file):
                time.sleep(0.001)
                yield row[:-1], row[-1]


class NextItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, 24)
        self.mix = nn.Linear(24, 24)

    def forward(self, history):
        return self.mix(self.items(history).mean(1)) @ self.items.weight.T


def recall_at_10(model, rank) -> float:
    g = torch.Generator().manual_seed(999 + rank)
    history, target = torch.randint(ITEMS, (64, 5), generator=g), torch.randint(ITEMS, (64,), generator=g)
    with torch.no_grad():
        top = model(history).topk(10).indices
    hits = (top == target[:, None]).any(1).float().mean().reshape(1)
    all_hits = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(all_hits, hits)
    return torch.cat(all_hits).mean().item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir(), f"clicks-{os.environ['MASTER_PORT']}")
    if rank == 0:
        write_click_log(folder)
    dist.barrier()
    torch.manual_seed(0)
    model = DDP(NextItem())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(5):
        for history, target in DataLoader(ClickLog(folder, rank, world), batch_size=8):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(history), target)
            loss.backward()
            optimizer.step()
        recall = recall_at_10(model.module, rank)
        if rank == 0:
            print(f"epoch {epoch}: recall@10 {recall:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
