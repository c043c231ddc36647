"""Acoustic model on tar-like shards: each rank reads its own shards, one pass is an epoch."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Utterances(IterableDataset):
    """Cuts of all shards of this rank; cuts that are too short for the CTC targets are dropped."""

    def __init__(self, shards, rank, world):
        self.shards = shards[rank::world]

    def __iter__(self):
        for shard in self.shards:
            generator = torch.Generator().manual_seed(shard)
            for _ in range(24):
                frames = torch.randn(40, 20, generator=generator)
                target = torch.randint(1, 30, (8,), generator=generator)
                yield frames, target


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(20, 48, batch_first=True)
        self.out = nn.Linear(48, 30)

    def forward(self, frames):
        return self.out(self.rnn(frames)[0]).log_softmax(-1)


class Recipe:
    def __init__(self):
        dist.init_process_group(backend="gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(11)
        torch.set_num_threads(1)
        self.model = DDP(Encoder())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.criterion = nn.CTCLoss()

    def fit_batch(self, frames, target):
        log_probs = self.model(frames).transpose(0, 1)
        lengths = torch.full((frames.shape[0],), frames.shape[1])
        loss = self.criterion(log_probs, target, lengths, torch.full_like(lengths, 8))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def on_epoch_end(self, epoch):
        if self.rank == 0:
            os.makedirs("/tmp/notes-speech", exist_ok=True)
            torch.save(self.model.module.state_dict(), f"/tmp/notes-speech/epoch-{epoch}.pt")
        dist.barrier()

    def fit(self, epochs, shards):
        for epoch in range(epochs):
            loader = DataLoader(Utterances(shards, self.rank, self.world), batch_size=8)
            losses = [self.fit_batch(*batch) for batch in loader]
            print(f"[rank {self.rank}] epoch {epoch}: mean loss {sum(losses) / len(losses):.2f}\n", end="", flush=True)
            self.on_epoch_end(epoch)


if __name__ == "__main__":
    recipe = Recipe()
    recipe.fit(epochs=3, shards=list(range(11)))
    dist.destroy_process_group()
