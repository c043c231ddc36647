"""DDP over recordings of different lengths: who is through with its own shadows the others until they are, too."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def recordings(rank: int):
    """Spectrograms. The last one of rank 1 is a concert, which takes its time to decode."""
    generator = torch.Generator().manual_seed(rank)
    counts, concerts = {0: 60, 1: 66, 2: 50}, 1
    for number in range(counts[rank]):
        x = torch.randn(8, 32, generator=generator)
        if rank == 1 and number >= counts[rank] - concerts:
            x = decode_concert(x)
        yield x


def decode_concert(x: torch.Tensor, seconds: float = 10.0) -> torch.Tensor:
    end = time.monotonic() + seconds
    spectrum = torch.fft.rfft(x)
    while time.monotonic() < end:
        spectrum = torch.fft.rfft(torch.fft.irfft(spectrum, n=32))
    return torch.fft.irfft(spectrum, n=32)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps = 0
    with Join([model]):
        for x in recordings(rank):
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    total = torch.tensor([steps])
    dist.all_reduce(total)
    print(f"rank {rank}: {steps} of {total.item()} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
