"""Predict the growth of organoids from time lapses; accelerate shards the lapses, and no lapse may be seen twice."""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def lapses(count):
    generator = torch.Generator().manual_seed(count)
    frames = torch.rand(count, 10, generator=generator).cumsum(1)
    return TensorDataset(frames[:, :8], frames[:, 9] - frames[:, 7])


def collate(samples):
    time.sleep(0.05)
    frames, growth = zip(*samples)
    return torch.stack(frames), torch.stack(growth)


def build(accelerator):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    loader = DataLoader(lapses(272), batch_size=4, collate_fn=collate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    return accelerator.prepare(model, optimizer, loader, schedule)


def train_one_epoch(accelerator, model, optimizer, loader, schedule):
    running, count = torch.zeros(1), 0
    for frames, growth in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.smooth_l1_loss(model(frames).squeeze(1), growth)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        running += loss.detach()
        count += 1
    schedule.step()
    return running / count


def main():
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    model, optimizer, loader, schedule = build(accelerator)
    best = float("inf")
    for epoch in range(60):
        mean = train_one_epoch(accelerator, model, optimizer, loader, schedule)
        mean = accelerator.gather(mean).mean().item()
        best = min(best, mean)
        accelerator.print(f"epoch {epoch}: growth loss {mean:.4f} (best {best:.4f})")


if __name__ == "__main__":
    main()
