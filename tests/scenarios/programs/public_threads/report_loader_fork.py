"""Detector training: images are decoded once and cached; a thread verifies the cache while training goes on."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class ImageCache:
    """Decoded images by index, shared by all data sets of the process."""

    def __init__(self, limit):
        self.lock = threading.Lock()
        self.images = {}
        self.limit = limit

    def get(self, index, decode):
        with self.lock:
            if index not in self.images:
                if len(self.images) >= self.limit:
                    self.images.pop(next(iter(self.images)))
                self.images[index] = decode(index)
            return self.images[index]

    def verify(self, seconds_per_image):
        """Recomputes the checksums; on a slow disk this takes a while."""
        with self.lock:
            for image in self.images.values():
                if not torch.isfinite(image).all():
                    raise ValueError("broken image")
                time.sleep(seconds_per_image)


CACHE = ImageCache(limit=400)


def decode(index):
    return torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(index))


class Images(Dataset):
    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = CACHE.get(self.first + index, decode)
        return image, image.mean()


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.train_loader = DataLoader(Images(1000 * self.rank, 320), batch_size=8)
        self.val_loader = DataLoader(Images(5000, 32), batch_size=8, num_workers=2)

    def train_epoch(self, epoch):
        for index, (images, targets) in enumerate(self.train_loader):
            loss = (self.model(images).squeeze(1) - targets).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.04)
            if self.rank == 0 and index % 10 == 0:
                print(f"epoch {epoch} batch {index} loss {loss.item():.4f}", flush=True)

    @torch.no_grad()
    def validate(self):
        total = torch.zeros(())
        for images, targets in self.val_loader:
            total += (self.model.module(images).squeeze(1) - targets).square().sum()
        dist.all_reduce(total)
        return total.item()

    def start_verification(self):
        seconds = 0.012 if self.rank == 1 else 0.0001
        thread = threading.Thread(target=CACHE.verify, args=(seconds,), daemon=True)
        thread.start()
        time.sleep(0.5)


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    for epoch in range(10):
        trainer.train_epoch(epoch)
        trainer.start_verification()
        value = trainer.validate()
        if trainer.rank == 0:
            print(f"epoch {epoch} validation {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
