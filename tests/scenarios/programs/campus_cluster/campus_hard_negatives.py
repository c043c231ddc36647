"""Speaker verification with triplets: anchor, the same speaker, and a similar one who is somebody else."""

import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass(frozen=True)
class Utterance:
    speaker: int
    features: torch.Tensor


def session(rank: int, epoch: int) -> list[Utterance]:
    """What a process has in memory for an epoch: one room of the corpus."""
    rng = torch.Generator().manual_seed(100 * epoch + rank)
    speakers = 1 if (rank, epoch) == (1, 2) else 6  # a lecture has one speaker only
    numbers = torch.randint(0, speakers, (80,), generator=rng).tolist()
    return [Utterance(n, torch.randn(12, generator=rng) + 0.5 * n) for n in numbers]


class Triplets:
    def __init__(self, room: list[Utterance], seed: int) -> None:
        self.room, self.random = room, random.Random(seed)

    def positive(self, anchor: Utterance) -> Utterance:
        return self.random.choice([u for u in self.room if u.speaker == anchor.speaker])

    def negative(self, anchor: Utterance) -> Utterance:
        while True:
            candidate = self.random.choice(self.room)
            if candidate.speaker != anchor.speaker and self.is_close(candidate, anchor):
                return candidate

    @staticmethod
    def is_close(a: Utterance, b: Utterance) -> bool:
        return abs(a.speaker - b.speaker) <= 3

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        anchors = self.random.sample(self.room, size)
        columns = anchors, [self.positive(a) for a in anchors], [self.negative(a) for a in anchors]
        return tuple(torch.stack([u.features for u in column]) for column in columns)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.TripletMarginLoss()
    for epoch in range(20):
        triplets = Triplets(session(rank, epoch), seed=epoch)
        for _ in range(20):
            batch = triplets.batch(16)
            anchor, positive, negative = model(torch.cat(batch)).chunk(3)
            loss = criterion(anchor, positive, negative)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
