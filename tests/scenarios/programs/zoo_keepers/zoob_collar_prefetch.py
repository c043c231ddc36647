"""Next-position model for GPS collars. A thread of each process reads the days of a season ahead of the training."""
import itertools
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HERDS = ["wildebeest", "zebra", "eland"]
DAYS_PER_SEASON, SEASONS, FIXES = 60, 6, 192
# days on which no collar of the herd sent anything (batteries were changed)
SILENT = {("zebra", 1, 37), ("zebra", 1, 38), ("eland", 3, 5)}


class CollarArchive:
    def __init__(self, herd):
        self.herd = herd

    def has(self, season, number):
        return number < DAYS_PER_SEASON and (HERDS[self.herd], season, number) not in SILENT

    def day(self, season, number):
        g = torch.Generator().manual_seed(self.herd * 4096 + season * 64 + number)
        steps = torch.randn(FIXES, 24, 2, generator=g)
        for _ in range(8):  # positions are filtered before use
            steps = 0.5 * steps + 0.25 * (steps.roll(1, 1) + steps.roll(-1, 1))
        track = steps.cumsum(1)
        return track[:, :-1], track[:, -1] - track[:, -2]


class SeasonReader:
    """Iterates over the days of a season."""

    def __init__(self, archive, depth=4):
        self.archive = archive
        self.ready = queue.Queue(maxsize=depth)

    def __len__(self):
        return DAYS_PER_SEASON

    def _read(self, season):
        for number in itertools.count():
            if not self.archive.has(season, number):
                return
            self.ready.put(self.archive.day(season, number))

    def season(self, season):
        threading.Thread(target=self._read, args=(season,), name=f"season{season}", daemon=True).start()
        for _ in range(len(self)):
            yield self.ready.get()


class Mover(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 48, batch_first=True)
        self.out = nn.Linear(48, 2)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


def main():
    dist.init_process_group("gloo")
    herd = dist.get_rank()
    torch.manual_seed(12)
    model = DDP(Mover())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    reader = SeasonReader(CollarArchive(herd))
    for season in range(SEASONS):
        for past, move in reader.season(season):
            loss = (model(past) - move).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        worst = loss.detach().clone()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        if herd == 2:
            print(f"season {season}: worst herd {worst.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
