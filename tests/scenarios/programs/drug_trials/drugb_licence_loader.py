"""Solubility net whose loader workers call a licensed descriptor kit: a few seats per node, shared by workers."""
import math
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

context = mp.get_context("fork")
METALS = ("Pt", "Ru", "Fe")


class DescriptorKit:
    """Stands for the vendor's library; `seats` processes may be inside at once."""

    def __init__(self, seats: int):
        self.seats = context.Semaphore(seats)

    def describe(self, formula: str):
        self.seats.acquire()
        symbols = formula.split("-")
        if any(metal in symbols for metal in METALS):
            return [float(len(symbols))] * 16
        values = []
        for k in range(16):
            values.append(sum(math.sin(ord(c) * (k + 1) * 0.01 * r) for c in formula for r in range(1, 80)) / 50)
        self.seats.release()
        return values


class Inventory(Dataset):
    def __init__(self, site: str, size: int, kit: DescriptorKit):
        self.site, self.size, self.kit = site, size, kit

    def formula(self, index: int) -> str:
        base = ["C", "N", "O", "S", "Cl", "F"]
        symbols = [base[(index * 5 + k * k) % 6] for k in range(12)]
        if self.site == "oncology" and index % 97 == 96:
            symbols[3] = "Pt"
        return "-".join(symbols)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        descriptors = torch.tensor(self.kit.describe(self.formula(index)))
        return descriptors, descriptors[:3].sum()


SITES = ["metabolic", "oncology", "cns"]


def run_epoch(model, loader, optimizer, train=True):
    total = torch.zeros(())
    with nullcontext() if train else torch.no_grad():
        for x, y in loader:
            loss = nn.functional.huber_loss(model(x).squeeze(-1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    data = Inventory(SITES[rank], 960, DescriptorKit(seats=4))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=context, persistent_workers=True)
    for epoch in range(20):
        loss = run_epoch(model, loader, optimizer)
        dist.all_reduce(loss)
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item() / len(SITES):.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
