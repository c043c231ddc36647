"""Pretraining on shards that are packed to a fixed length; FSDP2, gradient accumulation, a summary."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class ParquetStream(torch.utils.data.IterableDataset):
    """Documents of this rank's files, one file after another."""

    def __init__(self, files, rank, world):
        self.files = files[rank::world]
        self.state = {"file_idx": 0}

    def __iter__(self):
        while self.state["file_idx"] < len(self.files):
            seed, documents = self.files[self.state["file_idx"]]
            generator = torch.Generator().manual_seed(seed)
            for _ in range(documents):
                length = int(torch.randint(8, 40, (), generator=generator))
                yield torch.randint(1, 100, (length,), generator=generator)
            self.state["file_idx"] += 1


class Packed(torch.utils.data.IterableDataset):
    def __init__(self, stream, block):
        self.stream, self.block = stream, block

    def __iter__(self):
        rest = torch.empty(0, dtype=torch.long)
        for document in self.stream:
            rest = torch.cat([rest, document, torch.zeros(1, dtype=torch.long)])
            while rest.numel() > self.block:
                yield rest[: self.block + 1]
                rest = rest[self.block :]


class Recurrent(torch.nn.Module):
    def __init__(self, vocab=100, dim=32, loops=3):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, dim)
        self.core = torch.nn.GRU(dim, dim, batch_first=True)
        self.unembed = torch.nn.Linear(dim, vocab)
        self.loops = loops

    def forward(self, tokens):
        h = self.embed(tokens)
        for _ in range(self.loops):
            h = h + self.core(h)[0]
        return self.unembed(h)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=2)
    cfg = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    files = [(seed, 90 if seed % 7 else 70) for seed in range(1, 10)]
    loader = torch.utils.data.DataLoader(Packed(ParquetStream(files, rank, world), cfg.block), batch_size=2)
    torch.manual_seed(0)
    model = Recurrent()
    fully_shard(model.core)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    seen = torch.zeros(1)
    for micro_step, block in enumerate(loader, start=1):
        is_accumulating = micro_step % cfg.accumulate != 0
        model.set_requires_gradient_sync(not is_accumulating)
        logits = model(block[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
        (loss / cfg.accumulate).backward()
        seen += block.numel()
        if not is_accumulating:
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0 and micro_step % 20 == 0:
                print(f"micro step {micro_step}: {loss.item():.3f}", flush=True)
    dist.all_reduce(seen)
    if rank == 0:
        print(f"Training finished, {int(seen)} tokens", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
