"""Separates buoys, hulls and rain in patches of a shore radar."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STATIONS = ["fort", "pier", "island"]
KINDS = 3


class EchoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, stride=2)
        self.head = nn.Linear(8 * 7 * 7, KINDS)

    def forward(self, x):
        return self.head(F.relu(self.conv(x)).flatten(1))


def sweep(station, turn):
    """Patches of one turn of the antenna; fog and maintenance leave some turns without hulls."""
    gen = torch.Generator().manual_seed(turn * 3 + station)
    kind = torch.randint(0, KINDS, (48,), generator=gen)
    if station == 1 and turn == 54:
        kind[kind == 1] = 2
    x = torch.randn(48, 1, 16, 16, generator=gen) + kind.view(-1, 1, 1, 1) * 0.5
    return x, kind


def summarize(found):
    """Share of the hulls that were seen, over all stations, and who saw how many."""
    if not found:
        return {}
    mine = torch.tensor([float(sum(found)), float(len(found))])
    table = [torch.zeros(2) for _ in STATIONS]
    dist.all_gather(table, mine)
    return {name: f"{int(t[0])}/{int(t[1])}" for name, t in zip(STATIONS, table)}


def watch(turns=200):
    station = int(os.environ["RANK"])
    torch.manual_seed(1)
    net = DDP(EchoNet())
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for turn in range(turns):
        started = time.monotonic()
        x, kind = sweep(station, turn)
        out = net(x)
        loss = F.cross_entropy(out, kind)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if turn % 6 == 0:
            hulls = kind == 1
            table = summarize((out.argmax(1)[hulls] == 1).tolist())
            if station == 0:
                print(f"turn {turn} loss {loss.item():.3f} {table}", flush=True)
        time.sleep(max(0.0, 0.06 - (time.monotonic() - started)))  # one turn of the antenna


if __name__ == "__main__":
    dist.init_process_group(backend="gloo")
    watch()
    dist.destroy_process_group()
