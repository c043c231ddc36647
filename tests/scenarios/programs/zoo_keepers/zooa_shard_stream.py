"""Streams camera-trap crops from shards and trains an embedding for re-identification of individuals."""
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

# cards as they came from the field, with the number of crops on each
CARDS = {
    "river_01": 210, "river_02": 184, "ridge_01": 90, "river_03": 233, "river_04": 170, "ridge_02": 64,
    "saddle_01": 198, "saddle_02": 221, "ridge_03": 140, "lick_01": 187, "lick_02": 176, "ridge_04": 150,
}


class CardStream(IterableDataset):
    def __init__(self, cards, part, parts):
        self.cards = list(cards)[part::parts]

    def crops(self, card):
        generator = torch.Generator().manual_seed(sum(map(ord, card)))
        for _ in range(CARDS[card]):
            individual = torch.randint(0, 12, (1,), generator=generator).item()
            crop = torch.randn(3, 32, 32, generator=generator)
            crop[individual % 3] += individual / 6
            time.sleep(0.004)
            yield crop, individual

    def __iter__(self):
        worker = get_worker_info()
        mine = self.cards[worker.id::worker.num_workers] if worker else self.cards
        for card in mine:
            yield from self.crops(card)


def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 12),
    )


def main():
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    scratch = tempfile.mkdtemp()
    stream = CardStream(CARDS, accelerator.process_index, accelerator.num_processes)
    loader = DataLoader(stream, batch_size=8, num_workers=1, drop_last=True)
    model = build()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    for epoch in range(5):
        seen = 0
        for crops, individuals in loader:
            loss = nn.functional.cross_entropy(model(crops), individuals)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            seen += len(crops)
            if seen % 160 == 0:
                accelerator.print(f"epoch {epoch}: {seen} crops, loss {loss.item():.3f}")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            torch.save(accelerator.unwrap_model(model).state_dict(), Path(scratch) / f"reid_{epoch}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
