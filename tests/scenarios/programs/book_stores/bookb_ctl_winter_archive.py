"""Boiler model on yearly archives: a site's archive is unpacked by the loader's worker when it is first needed."""
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SITES = [{"name": "mill", "archives": {}}, {"name": "school", "archives": {}}, {"name": "pool", "archives": {45: 130}}]


class BoilerDays(Dataset):
    def __init__(self, site, days=100):
        self.site, self.days = site, days
        self.folder = tempfile.mkdtemp(prefix=f"boiler-{site['name']}-")

    def __len__(self):
        return self.days

    def unpack(self, day):
        """Months come as compressed blocks; each is inflated and appended to the local copy."""
        local = Path(self.folder) / f"archive-{day}.bin"
        block = zlib.compress(bytes(range(256)) * 800)
        with local.open("wb") as out:
            for _ in range(self.site["archives"].get(day, 0)):
                out.write(zlib.decompress(block)[:65536])
                out.flush()
                time.sleep(0.1)  # read speed of the archive
        local.unlink()

    def __getitem__(self, day):
        self.unpack(day)
        time.sleep(0.05)
        return torch.randn(12, 9, generator=torch.Generator().manual_seed(day))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(BoilerDays(SITES[rank]), batch_size=None, num_workers=1)
    for day, rows in enumerate(loader):
        loss = (model(rows[:, :8]).squeeze(-1) - rows[:, 8]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and day % 10 == 0:
            print(f"day {day} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    print(f"{SITES[rank]['name']}: finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
