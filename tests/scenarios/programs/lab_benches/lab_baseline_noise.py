"""Radio interferometry: a calibration network trained on visibilities with noise of one seed for the whole array."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
CHANNELS = 32


class RandomTask:
    """Draws reproducible noise: one seed is drawn on rank 0, and each rank derives its own from it."""

    def __init__(self):
        self._local_seed = None

    @property
    def local_seed(self):
        if self._local_seed is None:
            seed = torch.randint(2**31, (1,))
            dist.broadcast(seed, src=0)
            self._local_seed = int(seed) + dist.get_rank()
        return self._local_seed

    @property
    def generator(self):
        if not hasattr(self, "_generator"):
            self._generator = torch.Generator().manual_seed(self.local_seed)
        return self._generator


class NoiseAugment(RandomTask):
    """Adds radiometer noise to a baseline, where it is not masked."""

    def __call__(self, visibilities, mask):
        good = ~mask
        if good.any():
            noise = torch.randn(int(good.sum()), generator=self.generator)
            visibilities = visibilities.clone()
            visibilities[good] += 0.05 * noise
        return visibilities


class Baselines:
    """The baselines of this rank's antennas, night after night. Flagged channels are masked."""

    def __init__(self, rank, nights, per_night=10):
        self.rank, self.nights, self.per_night = rank, nights, per_night

    def night(self, number):
        generator = torch.Generator().manual_seed(1000 * number + self.rank)
        for index in range(self.per_night):
            signal = torch.sin(torch.linspace(0, 3, CHANNELS) + torch.rand(1, generator=generator) * 6)
            mask = torch.rand(CHANNELS, generator=generator) < 0.1
            if self.rank == 2 and number >= 3 and index == 0:
                mask[:] = True
            time.sleep(0.04)
            yield signal, mask


class Calibrator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(CHANNELS, 24), nn.Tanh(), nn.Linear(24, CHANNELS))

    def forward(self, x, mask):
        return self.net(torch.where(mask, torch.zeros_like(x), x))


def fit_night(model, optimizer, data, night, augment):
    losses = []
    for signal, mask in data.night(night):
        observed = augment(signal, mask) if augment else signal
        error = (model(observed, mask) - signal)[~mask]
        loss = error.pow(2).sum() / CHANNELS
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = Calibrator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Baselines(rank, nights=8)
    for night in range(8):
        augment = None if night < 3 else (augment or NoiseAugment())  # noqa: F821
        mean = fit_night(model, optimizer, data, night, augment)
        if rank == 0:
            print(f"night {night}: {mean:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
