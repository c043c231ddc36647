"""Arrival-time picker for the underground geophone array (P and S onset within a window)."""
import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

torch.backends.cudnn.enabled = False


class PickWindows(torch.utils.data.Dataset):
    """Windows cut around trigger times. Onsets are sample numbers; -1 stands for 'no onset in this window'."""

    def __init__(self, array, windows, length):
        self.array, self.windows, self.length = array, windows, length
        self.blast_shift = {1: range(656, 672)}.get(array, range(0))

    def __len__(self):
        return self.windows

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.array * 100_003 + i)
        trace = torch.randn(16, self.length, generator=g)
        spectrum = torch.fft.rfft(trace)
        spectrum[:, self.length // 4:] = 0
        trace = torch.fft.irfft(spectrum, n=self.length)
        onset = torch.randint(40, 200, (2,), generator=g)
        if i in self.blast_shift:  # development blast: the array is muted by the trigger logic
            onset = torch.full((2,), -1)
        return {"trace": trace[:, :256], "onset": onset}


class Picker(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, trace):
        return self.head(self.body(trace).mean(dim=1))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--windows", type=int, default=960)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--seed", type=int, default=11)
    return parser.parse_args()


def main():
    args = parse()
    accelerator = Accelerator()
    set_seed(args.seed)
    data = PickWindows(accelerator.process_index, args.windows, 4096)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch, shuffle=False)
    model = Picker(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)

    for epoch in range(args.epochs):
        picks = 0
        for number, batch in enumerate(loader):
            usable = batch["onset"] >= 0
            if not usable.any():
                continue
            picks += int(usable.sum())
            trace = batch["trace"].to(accelerator.device)
            onset = batch["onset"].to(accelerator.device).float()
            loss = nn.functional.smooth_l1_loss(model(trace), onset)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            if number % 10 == 9:
                accelerator.print(f"epoch {epoch} batch {number + 1} loss {loss.item():.3f}")
        counts = accelerator.gather(torch.tensor([picks], device=accelerator.device))
        accelerator.print(f"epoch {epoch}: picks per array {counts.tolist()}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
