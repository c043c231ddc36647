"""Storm-surge emulator: an ensemble member per rank, trained together, with the spread of the members in the log."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STATIONS = ["Cuxhaven", "Esbjerg", "Dover", "Aberdeen"]


class SurgeNet(nn.Module):
    def __init__(self, fields=12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(fields, 24), nn.BatchNorm1d(24), nn.SiLU(), nn.Linear(24, len(STATIONS)))

    def forward(self, winds):
        return self.body(winds)


class RunLog:
    """Prints what happens on the head rank; quiet elsewhere."""

    def __init__(self, rank, every=6):
        self.rank, self.every, self.started = rank, every, time.monotonic()

    def step(self, number, loss, levels):
        if self.rank != 0:
            return
        line = f"{time.monotonic() - self.started:6.1f}s step {number} loss {loss:.4f}"
        if number and number % (self.every * 3) == 0:
            line += " spread " + " ".join(f"{s}={v:.2f}" for s, v in zip(STATIONS, ensemble_spread(levels)))
        if number % self.every == 0:
            print(line, flush=True)


def ensemble_spread(levels):
    """Standard deviation over the members of each station's mean level."""
    mine = levels.detach().mean(0)
    members = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(members, mine)
    return torch.stack(members).std(0).tolist()


def wind_batches(member, count, size=16):
    generator = torch.Generator().manual_seed(400 + member)
    for _ in range(count):
        winds = torch.randn(size, 12, generator=generator)
        levels = winds[:, :4].cumsum(1) + 0.1 * torch.randn(size, 4, generator=generator)
        time.sleep(0.08)
        yield winds, levels


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    rank = dist.get_rank()
    model = DistributedDataParallel(SurgeNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    log = RunLog(rank)
    for number, (winds, levels) in enumerate(wind_batches(rank, int(os.environ.get("STEPS", "300")))):
        predicted = model(winds)
        loss = nn.functional.smooth_l1_loss(predicted, levels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.step(number, loss.item(), predicted)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
