"""A small language model; the speed of all ranks is reported every so many seconds."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REPORT_INTERVAL = 2.0  # seconds


def load_corpus(rank: int) -> torch.Tensor:
    """The shard of this rank; they are not equally large."""
    generator = random.Random(rank)
    size = 60_000 if rank == 1 else 1_600_000
    return torch.tensor([generator.randrange(256) for _ in range(size)])


class Tiny(nn.Module):
    """Predicts the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 32)
        self.mix = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of a batch."""
        hidden = self.mix(self.embed(tokens[:, :-1]))
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    """Three thousand steps."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = Tiny()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model(torch.zeros(4, 65, dtype=torch.long)).backward()  # reserve the memory
    optimizer.zero_grad()
    corpus = load_corpus(rank)
    last_report = time.time()
    stats = torch.zeros(3)
    for step in range(3000):
        starts = torch.randint(0, len(corpus) - 65, (4,))
        batch = torch.stack([corpus[i : i + 65] for i in starts])
        loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        stats += torch.tensor([loss.item(), batch.numel(), 1.0])
        if time.time() - last_report >= REPORT_INTERVAL:
            dist.barrier()
            elapsed = time.time() - last_report
            dist.all_reduce(stats)
            if rank == 0:
                print(
                    f"step {step}: loss {stats[0] / stats[2]:.3f}, {stats[1] / elapsed / world:.0f} tokens/s",
                    flush=True,
                )
            stats.zero_()
            last_report = time.time()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
