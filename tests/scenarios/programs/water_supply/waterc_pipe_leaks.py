"""Leak detection on pressure traces: every process trains and validates on the districts assigned to it."""
import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

DISTRICTS = {
    "harbour": {"train": 960, "valid": 448},
    "old-town": {"train": 960, "valid": 352},
    "plateau": {"train": 960, "valid": 448},
}


class PressureTraces(Dataset):
    def __init__(self, district, split, length=64):
        seed = sum(map(ord, district + split))
        gen = torch.Generator().manual_seed(seed)
        count = DISTRICTS[district][split]
        self.traces = torch.randn(count, length, generator=gen)
        self.leak = (torch.rand(count, generator=gen) < 0.3).float()
        self.traces[:, length // 2:] -= 0.8 * self.leak[:, None]

    def __len__(self):
        return len(self.traces)

    def __getitem__(self, index):
        return self.traces[index], self.leak[index]


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    scores, truth = [], []
    for traces, leak in loader:
        time.sleep(0.02)
        scores.append(accelerator.gather(torch.sigmoid(model(traces)).squeeze(-1)))
        truth.append(accelerator.gather(leak))
    accelerator.wait_for_everyone()
    scores, truth = torch.cat(scores), torch.cat(truth)
    return ((scores > 0.5).float() == truth).float().mean().item()


def main():
    args = parse_args()
    accelerator = Accelerator(cpu=True)
    set_seed(5)
    district = list(DISTRICTS)[accelerator.process_index]
    train = DataLoader(PressureTraces(district, "train"), args.batch_size, shuffle=True, drop_last=True)
    valid = DataLoader(PressureTraces(district, "valid"), args.batch_size, drop_last=True)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model, optimizer = accelerator.prepare(model, optimizer)  # loaders stay local, districts are not to be mixed
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        model.train()
        for traces, leak in train:
            time.sleep(0.05)
            loss = criterion(model(traces).squeeze(-1), leak)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accuracy = validate(accelerator, model, valid)
        accelerator.print(f"epoch {epoch} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
