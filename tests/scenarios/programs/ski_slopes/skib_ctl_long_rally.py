"""Table tennis rallies from a capture card, read by DataLoader workers; spin regression with accelerate."""
import time
import zlib

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

FPS = 25


class CaptureCard:
    """Plays a tape at its own pace: a frame every 1/FPS seconds, whoever is in a hurry."""

    def __init__(self, rally):
        self.rally = rally

    def frames(self):
        state = self.rally["id"]
        for _ in range(self.rally["frames"]):
            time.sleep(1 / FPS)
            state = zlib.crc32(state.to_bytes(4, "little"))
            yield state


class Rallies(Dataset):
    def __init__(self, table, count=64):
        lengths = [1] * count
        if table == 2:
            lengths[41] = 330  # the longest rally of the tournament
        self.rallies = [{"id": 1000 * table + i, "frames": n} for i, n in enumerate(lengths)]

    def __len__(self):
        return len(self.rallies)

    def __getitem__(self, i):
        histogram = torch.zeros(32)
        for state in CaptureCard(self.rallies[i]).frames():
            for shift in range(0, 30, 5):
                histogram[(state >> shift) & 31] += 1
        histogram /= histogram.sum()
        return histogram, histogram[:8].sum()


def main():
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    torch.manual_seed(6)
    loader = DataLoader(Rallies(accelerator.process_index), batch_size=2, num_workers=1)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(1):
        for number, (histogram, spin) in enumerate(loader):
            for _ in range(12):
                loss = (model(histogram).squeeze(-1) - spin).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if number % 8 == 0:
                accelerator.print(f"pair {number}: {loss.item():.5f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
