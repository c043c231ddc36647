"""Hot-axle detection from wayside recordings that arrive in a spool folder (one per rank's wayside station)."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SAMPLES = 2048


class WaysideStation:
    """Writes recordings as the data logger does: samples first, then a .ok beside a complete file."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        self.rng = np.random.default_rng(rank + 5)

    def record(self, count):
        for number in range(count):
            wave = self.rng.normal(size=SAMPLES).astype(np.float32)
            wave += np.sin(np.arange(SAMPLES) * 0.05 * self.rng.uniform(0.5, 2)).astype(np.float32)
            if self.rank == 2 and number == 412:
                wave = wave[: SAMPLES // 3]  # the train was shorter than announced
            path = self.folder / f"axle-{number:05d}.f32"
            wave.tofile(path)
            if path.stat().st_size == SAMPLES * 4:
                path.with_suffix(".ok").touch()


class Recordings(Dataset):
    def __init__(self, folder, count, poll=0.1):
        self.folder, self.count, self.poll = folder, count, poll

    def __len__(self):
        return self.count

    def _arrived(self, path):
        while not path.with_suffix(".ok").exists():
            time.sleep(self.poll)
        return path

    def __getitem__(self, number):
        wave = np.fromfile(self._arrived(self.folder / f"axle-{number:05d}.f32"), dtype=np.float32)
        spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave))))[:512]
        bands = np.log1p(spectrum.reshape(64, 8).mean(1))
        return torch.from_numpy(bands.astype(np.float32)), torch.tensor([float(bands[2] > bands.mean() * 1.5)])


def build():
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    return DDP(net)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=800)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"wayside{rank}-"))
    WaysideStation(folder, rank).record(args.recordings)
    dist.barrier()
    loader = DataLoader(Recordings(folder, args.recordings), batch_size=args.batch, num_workers=args.workers)
    torch.manual_seed(6)
    model = build()
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for number, (bands, hot) in enumerate(loader):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(bands), hot)
            optim.zero_grad()
            loss.backward()
            optim.step()
            time.sleep(0.015)
            if rank == 0 and number % 20 == 0:
                print(f"epoch {epoch} batch {number}/{len(loader)} bce {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
