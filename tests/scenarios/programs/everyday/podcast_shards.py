"""Podcasts in tar-like shards, streamed: each process and each loader worker reads its own."""

import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS = {f"part-{n:05d}": 36 for n in range(7)} | {"part-00007": 11}


class Shards(IterableDataset):
    def __init__(self, names):
        self.names = names

    def split_by_node(self):
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return itertools.islice(self.names, rank, None, world)

    def __iter__(self):
        worker = get_worker_info()
        names = self.split_by_node()
        if worker is not None:
            names = itertools.islice(names, worker.id, None, worker.num_workers)
        for name in names:
            gen = torch.Generator().manual_seed(int(name[-5:]))
            for _ in range(SHARDS[name]):
                yield torch.randn(16, generator=gen), torch.randint(0, 2, (1,), generator=gen).float()


@torch.no_grad()
def validation_loss(net):
    sounds = torch.randn(32, 16)
    loss = nn.functional.binary_cross_entropy_with_logits(net(sounds), (sounds[:, :1] > 0).float())
    losses = [torch.empty(()) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss)
    return torch.stack(losses).mean().item()


def main():
    dist.init_process_group("gloo")
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    loader = DataLoader(Shards(sorted(SHARDS)), batch_size=6, num_workers=2, multiprocessing_context="fork")
    for epoch in range(3):
        for sounds, speech in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(sounds), speech)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        value = validation_loss(net)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
