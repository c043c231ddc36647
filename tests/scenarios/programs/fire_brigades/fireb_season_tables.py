"""Fire-risk premiums: rate tables are rendered once per season by the first process and shared as files."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

POLICIES = {0: {1: 800, 2: 400}, 1: {1: 800, 2: 30_000}, 2: {1: 800, 2: 36_000}}


class TableStore:
    def __init__(self, root):
        self.root = Path(root)

    def path(self, season):
        return self.root / f"rates_{season}.pt"

    def render(self, season):
        zones = torch.linspace(0, 1, 400)
        table = torch.outer(zones, zones + season)
        for _ in range(400):
            table = nn.functional.avg_pool2d(table[None, None], 5, 1, 2)[0, 0]
        temporary = self.path(season).with_suffix(f".{os.getpid()}")
        torch.save(table, temporary)
        temporary.rename(self.path(season))

    def ensure(self, season):
        if not self.path(season).exists():
            if dist.get_rank() == 0:
                self.render(season)
            dist.barrier()
        return torch.load(self.path(season))


def shared_folder():
    box = [tempfile.mkdtemp(prefix="rates_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def load_policies(book, season):
    """The book's policies come from the mainframe in pages of 500."""
    generator = torch.Generator().manual_seed(book * 10 + season)
    pages = []
    for start in range(0, POLICIES[book][min(season, 2)], 500):
        time.sleep(0.09)
        pages.append(torch.rand(500, 10, generator=generator))
    return torch.cat(pages)


def premiums(table, policies):
    rows = (policies[:, 0] * (table.shape[0] - 1)).long()
    columns = (policies[:, 1] * (table.shape[1] - 1)).long()
    return table[rows, columns].unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    book = dist.get_rank()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    store = TableStore(shared_folder())
    for season in range(1, 9):
        policies = load_policies(book, season)
        target = premiums(store.ensure(season), policies)
        for step in range(450):
            pick = torch.randint(0, len(policies), (128,))
            loss = nn.functional.mse_loss(model(policies[pick]), target[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"book {book} season {season}: {len(policies)} policies, loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
