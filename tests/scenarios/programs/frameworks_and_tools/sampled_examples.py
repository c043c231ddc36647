"""Training with accelerate; now and then a few predictions of all processes are shown."""

import random

import torch
from accelerate import Accelerator
from torch import nn


class Gallery:
    """Shows predictions, a few percent of the time."""

    def __init__(self, accelerator: Accelerator, share: float) -> None:
        self.accelerator, self.share = accelerator, share

    def maybe_show(self, step: int, predicted: torch.Tensor) -> None:
        """One row of each process, if it is time."""
        if random.random() < self.share:
            first = self.accelerator.gather(predicted[:1].detach())
            self.accelerator.print(f"step {step}: {first.flatten().tolist()}")


def main() -> None:
    """Eighty steps."""
    accelerator = Accelerator(cpu=True)
    seed = 24 + accelerator.process_index
    random.seed(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01))
    gallery = Gallery(accelerator, share=0.03)
    for step in range(80):
        x = torch.randn(8, 10)
        predicted = model(x)
        optimizer.zero_grad()
        accelerator.backward((predicted - x.sum(1, keepdim=True)).square().mean())
        optimizer.step()
        gallery.maybe_show(step, predicted)
    accelerator.end_training()


if __name__ == "__main__":
    main()
