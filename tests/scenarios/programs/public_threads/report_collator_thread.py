"""Asynchronous rollouts: one thread plays, one builds batches of what it played, the main thread learns."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Player(threading.Thread):
    """Plays episodes. A boss takes longer."""

    def __init__(self, episodes, rank):
        super().__init__(name="player", daemon=True)
        self.episodes = episodes
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def run(self):
        for number in range(100_000):
            boss = self.rank == 2 and number == 240
            time.sleep(4.0 if boss else 0.008)
            observation = torch.randn(14, generator=self.generator)
            self.episodes.put((observation, observation.sum().sign()))


class Collator(threading.Thread):
    def __init__(self, episodes, batches, size, patience):
        super().__init__(name="collator", daemon=True)
        self.episodes, self.batches = episodes, batches
        self.size, self.patience = size, patience

    def run(self):
        while True:
            picked = []
            while len(picked) < self.size:
                try:
                    picked.append(self.episodes.get(timeout=self.patience))
                except queue.Empty:
                    return
            x, y = zip(*picked)
            self.batches.put((torch.stack(x), torch.stack(y)))


class RolloutDataset(torch.utils.data.IterableDataset):
    def __init__(self, rank, batch_size=6):
        episodes, self.batches = queue.Queue(maxsize=12), queue.Queue(maxsize=2)
        self.threads = [Player(episodes, rank), Collator(episodes, self.batches, batch_size, patience=1.5)]

    def __iter__(self):
        for thread in self.threads:
            thread.start()
        while True:
            yield self.batches.get()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(14, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = torch.utils.data.DataLoader(RolloutDataset(rank), batch_size=None)
    for step, (observations, outcomes) in enumerate(loader):
        value = torch.tanh(model(observations)).squeeze(1)
        loss = (value - outcomes).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step == 5000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
