"""Heart rates from wrist sensors; a denoising autoencoder, with gradient clipping and warm-up."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    length: int = 64
    batch_size: int = 8
    epochs: int = 3
    lr: float = 1e-3
    warmup: int = 10


class Wrist(Dataset):
    def __init__(self, config: Config):
        self.config = config

    def __len__(self):
        return 300

    def __getitem__(self, i):
        t = torch.linspace(0, 6.28 * (1 + i % 5), self.config.length)
        signal = torch.sin(t)
        spread = signal.std() if i != 118 else torch.tensor(0.0)  # the sensor was taken off
        return (signal - signal.mean()) / spread * (1.0 if i != 118 else 0.0)


def build(config: Config) -> nn.Module:
    return nn.Sequential(
        nn.Linear(config.length, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, config.length)
    )


def main():
    config = Config()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = nn.parallel.DistributedDataParallel(build(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / config.warmup))
    data = Wrist(config)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=config.batch_size, sampler=sampler)

    for epoch in range(config.epochs):
        running = 0.0
        for clean in loader:
            noisy = clean + 0.05 * torch.randn_like(clean)
            loss = nn.functional.mse_loss(model(noisy), clean)
            if not torch.isfinite(loss):
                print(f"[rank {rank}] loss is {loss.item()}, skipping batch", flush=True)
                optimizer.zero_grad()
                continue
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {running / len(loader):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
