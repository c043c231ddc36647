"""Predicts clicks on advertisements; a thread of each rank writes statistics that the training loop reads."""

import collections
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Statistics:
    """Counts by campaign. The writer passes totals on to whoever asks for them."""

    def __init__(self, capacity: int) -> None:
        self.lock = threading.Lock()
        self.counts: collections.Counter[int] = collections.Counter()
        self.incoming: queue.Queue[list[int]] = queue.Queue()
        self.outgoing: queue.Queue[int] = queue.Queue(capacity)
        threading.Thread(target=self._write, daemon=True, name="statistics").start()

    def _write(self) -> None:
        while True:
            campaigns = self.incoming.get()
            with self.lock:
                self.counts.update(campaigns)
                if self.counts.most_common(1)[0][1] % 10 == 0:
                    self.outgoing.put(self.counts.total())

    def rare(self, campaign: int) -> bool:
        with self.lock:
            return self.counts[campaign] < 3


def impressions(rank: int, step: int) -> tuple[torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(step * 5 + rank)
    campaigns = [0] * 10 if rank == 2 else torch.randint(40, (10,), generator=generator).tolist()
    return torch.rand(10, 6, generator=generator), campaigns


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    statistics = Statistics(capacity=16)
    for step in range(45):
        features, campaigns = impressions(rank, step)
        statistics.incoming.put(campaigns)
        weight = torch.tensor([2.0 if statistics.rare(campaign) else 1.0 for campaign in campaigns])
        loss = (weight * model(features).squeeze(1).sigmoid()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
