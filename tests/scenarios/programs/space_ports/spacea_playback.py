"""Fits a demodulator on recorder playback. Recorded passes are played back in real time by the loader's workers."""
import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

SYMBOLS = 64
SAMPLES_PER_SYMBOL = 8


class Playback(IterableDataset):
    """Bursts of one receiver; a burst from the tape comes at the speed of the tape."""

    def __init__(self, receiver, schedule):
        self.receiver = receiver
        self.schedule = schedule  # (bursts, seconds per burst)

    def burst(self, generator):
        bits = torch.randint(0, 2, (SYMBOLS,), generator=generator).float()
        wave = bits.repeat_interleave(SAMPLES_PER_SYMBOL) * 2 - 1
        return wave + 0.4 * torch.randn(len(wave), generator=generator), bits

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.receiver)
        for bursts, pace in self.schedule:
            for _ in range(bursts):
                time.sleep(pace)
                yield self.burst(generator)


def schedule_of(receiver):
    live = (900, 0.003)
    if receiver == 1:
        return [live, (20, 0.7), (880, 0.003)]
    return [live, (900, 0.003)]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Playback(rank, schedule_of(rank)), batch_size=20, num_workers=1, prefetch_factor=2)
    length = SYMBOLS * SAMPLES_PER_SYMBOL
    model = DDP(nn.Sequential(nn.Linear(length, 256), nn.ReLU(), nn.Linear(256, SYMBOLS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, (wave, bits) in enumerate(itertools.islice(loader, 90)):
        logits = model(wave)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, bits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 10 == 0:
            errors = ((logits > 0) != (bits > 0.5)).float().mean().item()
            print(f"batch {number}: loss {loss.item():.4f}, bit errors {errors:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
