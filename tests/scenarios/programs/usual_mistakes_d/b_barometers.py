"""Weather from the barometers of many stations; a step that cannot be used is left out."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logger = logging.getLogger("barometers")


class Stations(Dataset):
    """Readings; a station that was repaired sent no numbers for a day."""

    def __init__(self) -> None:
        """Read it all."""
        generator = torch.Generator().manual_seed(9)
        self.readings = torch.randn(360, 8, generator=generator)
        self.rain = self.readings[:, :2].sum(1, keepdim=True)
        self.readings[151, 3] = float("nan")

    def __len__(self) -> int:
        """How many days."""
        return len(self.readings)

    def __getitem__(self, day: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One day."""
        return self.readings[day], self.rain[day]


def main() -> None:
    """Three epochs, the weights are averaged and kept after each."""
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Stations()
    loader = DataLoader(data, batch_size=6, sampler=DistributedSampler(data, shuffle=False))
    for epoch in range(3):
        for number, (readings, rain) in enumerate(loader):
            loss = nn.functional.smooth_l1_loss(model(readings), rain)
            if torch.isnan(loss):
                logger.warning("rank %d: batch %d has a loss of NaN, skipped", rank, number)
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        norms = [torch.zeros(1) for _ in range(dist.get_world_size())]
        norm = sum(p.detach().norm() for p in model.parameters()).reshape(1)
        dist.all_gather(norms, norm)
        if rank == 0:
            logger.info("epoch %d: norms of the weights %s", epoch, [round(n.item(), 3) for n in norms])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
