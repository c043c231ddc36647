"""Finds loop points in stunt and crowd plates from the self-similarity of their motion (accelerate)."""
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

PLATES = 270
# frame counts from the camera reports; plates which the report leaves out run 40 to 120 frames
CAMERA_REPORT = {37: 300, 142: 6_300_000, 201: 260}


class Plates(Dataset):
    def __len__(self):
        return PLATES

    def __getitem__(self, n):
        frames = CAMERA_REPORT.get(n, 40 + 13 * n % 80)
        g = torch.Generator().manual_seed(n)
        time.sleep(0.05)
        return torch.randn(frames, 4, generator=g), torch.rand(1, generator=g)


class LoopScore(nn.Module):
    def __init__(self, lags=16):
        super().__init__()
        self.lags = lags
        self.score = nn.Sequential(nn.Linear(lags, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, diagonals):
        return self.score(diagonals)


def diagonals_of(motion, lags=16):
    similarity = motion @ motion.t()
    return torch.stack([similarity.diagonal(k).mean() for k in range(1, lags + 1)])


def step(accelerator, model, optimizer, motion, target):
    loss = (model(diagonals_of(motion)) - target).abs().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(Plates(), batch_size=1, shuffle=False, collate_fn=lambda rows: rows[0])
    model = LoopScore()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, too_large = [], []
    for n, (motion, target) in enumerate(loader):
        try:
            losses.append(step(accelerator, model, optimizer, motion, target))
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            too_large.append(len(motion))
            optimizer.zero_grad()
        if n % 20 == 0:
            accelerator.print(f"plate {n}: {sum(losses[-20:]) / len(losses[-20:]):.3f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.print(f"done, {len(losses)} plates")
    accelerator.end_training()


if __name__ == "__main__":
    main()
