"""Lung nodule scoring; every rank reads its own site's studies with DataLoader workers."""
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class SiteStudies(Dataset):
    """A study is a list of compressed slices; a whole-body study has many more than the others."""

    def __init__(self, site, studies=96, whole_body=()):
        rng = np.random.default_rng(site)
        image = (rng.normal(0, 40, (96, 96)) + np.linspace(0, 900, 96)).astype(np.int16)
        self.slice = zlib.compress(image.tobytes(), 9)
        self.slices = [6] * studies
        for index in whole_body:
            self.slices[index] = 700

    def __len__(self):
        return len(self.slices)

    def decode(self):
        raw = np.frombuffer(zlib.decompress(self.slice), dtype=np.int16).reshape(96, 96)
        spectrum = np.abs(np.fft.rfft2(raw.astype(np.float64)))
        time.sleep(0.018)                   # reads come from the tape tier
        return np.log1p(spectrum[:16, :16])

    def __getitem__(self, index):
        total = np.zeros((16, 16))
        for _ in range(self.slices[index]):
            total += self.decode()
        features = torch.from_numpy(total / self.slices[index]).float()
        return features.flatten(), features.mean().unsqueeze(0)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.out = nn.Linear(256, 1)

    def forward(self, x):
        return self.out(self.norm(x))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    studies = SiteStudies(rank, whole_body=(60,) if rank == 2 else ())
    loader = DataLoader(studies, batch_size=1, num_workers=1, prefetch_factor=2)
    model = DistributedDataParallel(Scorer())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    errors = []
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        errors.append(loss.item())
    print(f"site {rank}: error {np.mean(errors[:10]):.3f} -> {np.mean(errors[-10:]):.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
