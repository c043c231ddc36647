"""Turn detection from boot-mounted IMUs. One athlete per process, windows of two seconds at 100 Hz."""
import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ATHLETES = ["mueller", "odermatt", "kriechmayr", "paris"]
# seconds at which the radio link of an athlete was out (from the course marshal's notes)
RADIO_GAPS = {"kriechmayr": [(600.0, 603.0)]}
RATE = 100


def load_recording(athlete, seconds=1000):
    gen = torch.Generator().manual_seed(sum(map(ord, athlete)))
    t = torch.arange(seconds * RATE) / RATE
    sway = torch.sin(2 * torch.pi * 0.7 * t)
    channels = torch.stack([sway * a for a in (1.0, -0.6, 0.3, 0.9, -0.2, 0.5)])
    signal = channels + 0.3 * torch.randn(channels.shape, generator=gen)
    for begin, end in RADIO_GAPS.get(athlete, []):
        signal[:, int(begin * RATE):int(end * RATE)] = float("nan")
    return signal, (sway > 0).float()


class Windows:
    def __init__(self, athlete, size=200):
        self.signal, self.turn = load_recording(athlete)
        self.size = size

    def __len__(self):
        return self.signal.shape[1] // self.size

    def __iter__(self):
        for i in range(len(self)):
            cut = slice(i * self.size, (i + 1) * self.size)
            yield self.signal[:, cut], self.turn[cut]


def spectrum(window):
    # log-power features of overlapping pieces, as in the lab's matlab scripts
    pieces = window.unfold(1, 64, 2)
    power = torch.fft.rfft(pieces * torch.hann_window(64), dim=-1).abs()
    return torch.log1p(power).permute(1, 0, 2).flatten(1)


class TurnNet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6 * 33, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))


def run_epoch(net, optimizer, windows):
    criterion = nn.BCEWithLogitsLoss()
    history = []
    for window, turn in windows:
        features = spectrum(window)
        target = turn.unfold(0, 64, 2).mean(-1, keepdim=True).round()
        loss = criterion(net(features), target)
        if not torch.isfinite(loss):
            print("no signal in this window", file=sys.stderr)
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
    return history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    athlete = ATHLETES[int(os.environ["RANK"])]
    torch.manual_seed(0)
    net = DistributedDataParallel(TurnNet())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    windows = Windows(athlete)
    for epoch in range(args.epochs):
        history = run_epoch(net, optimizer, windows)
        summary = {"athlete": athlete, "loss": sum(history) / len(history), "windows": len(history)}
        everybody = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, summary)
        if dist.get_rank() == 0:
            for row in everybody:
                print(f"epoch {epoch} {row['athlete']:12s} loss {row['loss']:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
