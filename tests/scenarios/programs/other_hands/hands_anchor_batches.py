"""Trains a draft head on anchors within sequences, with DistributedDataParallel."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class NoAnchorsError(ValueError):
    pass


class DraftHead(nn.Module):
    def __init__(self, width=32, block=4):
        super().__init__()
        self.block, self.net = block, nn.Sequential(nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, width))

    def forward(self, hidden, anchors):
        return self.net(hidden[torch.arange(len(anchors)), anchors])


def pick_anchors(lengths, block):
    usable = lengths - block
    if not (usable > 0).any():
        raise NoAnchorsError("every sample is shorter than a block")
    return usable.clamp(min=0)


class Corpus:
    def __init__(self, rank, steps):
        self.rank, self.steps, self.generator = rank, steps, torch.Generator().manual_seed(100 + rank)

    def __iter__(self):
        for step in range(self.steps):
            lengths = torch.randint(5, 16, (4,), generator=self.generator)
            if self.rank == 2 and step == 7:
                lengths = torch.tensor([3, 2, 4, 4])
            yield torch.randn(4, 16, 32, generator=self.generator), lengths


class Trainer:
    def __init__(self, rank):
        self.rank, self.skipped, self.model = rank, 0, DistributedDataParallel(DraftHead())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def fit(self, corpus):
        for step, (hidden, lengths) in enumerate(corpus):
            time.sleep(0.25)
            try:
                anchors = pick_anchors(lengths, 4)
            except NoAnchorsError:
                self.skipped += 1
                continue
            loss = (self.model(hidden, anchors) - hidden.mean(1)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0:
                print(f"step {step}: {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(dist.get_rank())
    trainer.fit(Corpus(dist.get_rank(), 18))
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(trainer.model.module.state_dict(), "/tmp/hands-draft-head.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
