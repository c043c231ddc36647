"""Star/galaxy separation on postage stamps cut from the exposures of each CCD (Lightning)."""
import queue
import threading
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

warnings.filterwarnings("ignore")


class Exposure:
    """One CCD image with the header the pipeline left."""

    def __init__(self, number):
        g = torch.Generator().manual_seed(number)
        self.header = {"EXPNUM": number, "GAIN": 1.2, "ZEROPT": 25.0, "SEEING": 0.8 + 0.3 * (number % 5) / 5}
        if number % 400 == 191:
            del self.header["ZEROPT"]
        self.pixels = torch.randn(768, 768, generator=g) * 3 + 100

    def stamps(self, count, size=16):
        image = (self.pixels - self.pixels.median()) / self.pixels.std()
        image = image * self.header["GAIN"] * 10 ** (0.4 * (self.header["ZEROPT"] - 25.0))
        patches = image.unfold(0, size, size).unfold(1, size, size).reshape(-1, 1, size, size)[:count]
        labels = (patches.amax(dim=(1, 2, 3)) > self.header["SEEING"] * 3.2).float()
        return patches, labels


class Ahead:
    """Iterates in a thread, a few items before they are needed."""

    DONE = object()

    def __init__(self, source, depth=3):
        self.items = queue.Queue(maxsize=depth)
        self.source = source
        threading.Thread(target=self._fill, name="ahead", daemon=True).start()

    def _fill(self):
        for item in self.source:
            self.items.put(item)
        self.items.put(self.DONE)

    def __iter__(self):
        while (item := self.items.get()) is not self.DONE:
            yield item


class NightlyExposures(IterableDataset):
    def __init__(self, first, count, stamps):
        self.first, self.count, self.stamps = first, count, stamps

    def _read(self, rank, world):
        for number in range(self.first + rank, self.first + self.count, world):
            yield Exposure(number).stamps(self.stamps)

    def __iter__(self):
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        return iter(Ahead(self._read(rank, world)))


class Separator(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(12 * 16, 1)
        )

    def training_step(self, batch, index):
        stamps, labels = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(stamps).squeeze(1), labels)
        if index % 20 == 0:
            print(f"[{self.global_rank}] exposure {index}: {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(5)
    nights = NightlyExposures(first=0, count=3000, stamps=256)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(Separator(), DataLoader(nights, batch_size=None, num_workers=0))


if __name__ == "__main__":
    main()
