"""Conjunction screening: a small risk network, refreshed half way with a Monte Carlo table that the main rank computes."""
import logging
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("screening")
SHELLS = range(400, 1050, 50)  # km
PER_SHELL = 1.1  # seconds of Monte Carlo that a shell is worth


class RiskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, x):
        return self.layers(x)


def sample_shell(altitude, gen, budget):
    """Propagate pairs of clouds for as long as the shell's budget lasts, count approaches below 1 km."""
    end, close, tried = time.monotonic() + budget, 0, 0
    while time.monotonic() < end:
        pos = torch.randn(400, 3, generator=gen) * 20
        vel = torch.randn(400, 3, generator=gen) * 0.5
        for _ in range(20):
            pos = pos + vel - pos * (400 / altitude) * 1e-3
            close += int((pos.norm(dim=1) < 1.0).sum())
        tried += 400
    return close / max(tried, 1)


def build_table(folder):
    gen = torch.Generator().manual_seed(77)
    for altitude in SHELLS:
        rate = sample_shell(altitude, gen, PER_SHELL)
        (folder / f"{altitude}.txt").write_text(f"{rate:.6f}\n")
        log.info("shell %d km: %.4f close approaches per pair", altitude, rate)


def load_table(folder):
    return torch.tensor([float(p.read_text()) for p in sorted(folder.glob("*.txt"))])


def steps(model, opt, count, gen, bias):
    for n in range(count):
        x = torch.randn(32, 7, generator=gen)
        loss = (model(x).squeeze(1) - x[:, 0].abs() - bias).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = DDP(RiskNet())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    name = [tempfile.mkdtemp(prefix="shells-")]
    dist.broadcast_object_list(name, src=0)
    first = steps(model, opt, 100, gen, 0.0)
    if rank == 0:
        build_table(Path(name[0]))
    dist.barrier()
    table = load_table(Path(name[0]))
    second = steps(model, opt, 100, gen, float(table.mean()))
    log.info("rank %d: %.4f, with table %.4f", rank, first, second)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
