"""Seat load factors per route, streamed page by page from the reservation system's export, trained with accelerate."""
import time
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn


@dataclass
class Export:
    """One cursor of the export: pages of bookings, each with the number of the next one."""

    market: int
    page_size: int = 24
    pages: dict = field(default_factory=lambda: {0: 58, 1: 58, 2: 46})

    def fetch(self, number):
        time.sleep(0.05)
        rng = torch.Generator().manual_seed(1000 * self.market + number)
        bookings = torch.rand(self.page_size, 9, generator=rng)
        following = number + 1 if number + 1 < self.pages[self.market] else None
        return bookings, following

    def __iter__(self):
        number = 0
        while number is not None:
            bookings, number = self.fetch(number)
            yield bookings, (bookings[:, :3].sum(1) / 3).clamp(max=0.9)


class LoadFactor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 1), nn.Sigmoid())

    def forward(self, bookings):
        return self.layers(bookings).squeeze(1)


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(11)
    network = LoadFactor()
    model, optimizer = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=1e-3))
    recent = torch.zeros(16)
    for page, (bookings, factor) in enumerate(Export(accelerator.process_index)):
        loss = nn.functional.mse_loss(model(bookings), factor)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        recent = torch.cat([recent[1:], loss.detach().reshape(1)])
        if page % 15 == 0:
            accelerator.print(f"page {page}: {loss.item():.4f}")
    everyone = accelerator.gather(recent)
    accelerator.print(f"recent loss over all markets: {everyone.mean().item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
