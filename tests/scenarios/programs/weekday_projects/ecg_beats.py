"""Finds irregular beats in ECG recordings. A patient's recordings stay on one rank."""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

PATIENTS = 18


def recordings(patient: int) -> list[list[float]]:
    source = random.Random(patient)
    return [[source.gauss(0, 1) for _ in range(32)] for _ in range(4 + patient % 3)]


class Ward:
    """The patients of one rank."""

    def __init__(self, rank: int, world: int) -> None:
        self.patients = [patient for patient in range(PATIENTS) if patient % world == rank]

    def dataset(self) -> TensorDataset:
        beats = [beat for patient in self.patients for beat in recordings(patient)]
        rows = torch.tensor(beats)
        return TensorDataset(rows, (rows.std(1) > 1).long())


def validate(model: torch.nn.Module) -> float:
    with torch.no_grad():
        rows = torch.randn(32, 32)
        irregular = model(rows).softmax(-1)[:, 1]
    shares = [torch.empty_like(irregular) for _ in range(dist.get_world_size())]
    dist.all_gather(shares, irregular)
    return torch.cat(shares).mean().item()


def run() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(Ward(rank, world).dataset(), batch_size=4, shuffle=True)
    for epoch in range(3):
        for rows, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        share = validate(net)
        if rank == 0:
            print(f"epoch {epoch}: {share:.1%} irregular", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
