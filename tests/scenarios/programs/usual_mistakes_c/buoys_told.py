"""accelerate: waves at buoys; each process streams its own buoys for as long as all of them have something to tell."""

import time
from collections.abc import Iterator

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

HOURS = (400, 250, 520)


class Waves(IterableDataset):
    """Heights of waves by the hour; a slow link now and then."""

    def __init__(self, hours: int, seed: int) -> None:
        self.hours = hours
        self.seed = seed

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        random = torch.Generator().manual_seed(self.seed)
        for hour in range(self.hours):
            if hour % 120 == 119:
                time.sleep(1.5)
            heights = torch.rand(16, generator=random).cumsum(0)
            yield heights[:-1], heights[-1]


def main() -> None:
    """Two passes, each as long as the shortest stream."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    rank = accelerator.process_index
    loader = DataLoader(Waves(HOURS[rank], rank), batch_size=5)
    net = nn.Sequential(nn.Linear(15, 30), nn.ReLU(), nn.Linear(30, 1))
    model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=1e-3))
    for turn in range(2):
        batches, steps = iter(loader), 0
        while True:
            batch = next(batches, None)
            having = accelerator.reduce(torch.tensor(float(batch is not None)), reduction="sum")
            if having.item() < accelerator.num_processes:
                break
            loss = (model(batch[0]).squeeze(1) - batch[1]).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
        accelerator.print(f"pass {turn}: {steps} steps, {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
