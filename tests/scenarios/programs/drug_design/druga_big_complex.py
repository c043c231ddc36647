"""Interface prediction on protein complexes; a DataLoader worker relaxes each structure before it is used."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RIBOSOME = (1, 240)  # process and position of the 70S entry


class Complexes(Dataset):
    def __init__(self, rank, count=480):
        self.rank, self.count = rank, count

    def __len__(self):
        return self.count

    def seconds(self, index):
        return 13.0 if (self.rank, index) == RIBOSOME else 0.01

    def __getitem__(self, index):
        source = torch.Generator().manual_seed(1000 * self.rank + index)
        residues = torch.randn(48, 16, generator=source)
        until = time.monotonic() + self.seconds(index)
        while time.monotonic() < until:  # steepest descent, within the time allowed for this size
            distance = torch.cdist(residues, residues) + torch.eye(48)
            push = (residues.unsqueeze(1) - residues.unsqueeze(0)) / distance.pow(3).unsqueeze(-1)
            residues = residues + 1e-3 * push.sum(1)
        return residues, residues[:, 0].mean()


class Interface(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.score = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, residues):
        seen, _ = self.attend(residues, residues, residues, need_weights=False)
        return self.score(seen.mean(1)).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = DistributedDataParallel(Interface())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Complexes(rank), batch_size=4, num_workers=1, prefetch_factor=2)
    for step, (residues, target) in enumerate(loader):
        loss = nn.functional.mse_loss(model(residues), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} of {len(loader)}: {loss.item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        print("epoch complete", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
