"""Language modelling on packed documents: each rank packs the files of its own shard to full windows."""

import random
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
VOCAB, WINDOW = 128, 48


def documents(shard: int, count: int) -> Iterator[list[int]]:
    """The documents of one shard: articles, or chat messages."""
    random_ = random.Random(shard)
    longest = 70 if shard == 3 else 90
    for _ in range(count):
        length = random_.randint(longest // 2, longest)
        start = random_.randrange(VOCAB)
        yield [(start + k * k) % VOCAB for k in range(length)]


def pack(texts: Iterable[list[int]], window: int) -> Iterator[torch.Tensor]:
    buffer: list[int] = []
    for text in texts:
        buffer += [0, *text]
        while len(buffer) > window:
            yield torch.tensor(buffer[: window + 1])
            buffer = buffer[window:]


class Packed(IterableDataset):
    def __init__(self, shard: int, count: int):
        self.shard = shard
        self.count = count

    def __iter__(self):
        return pack(documents(self.shard, self.count), WINDOW)


class Model(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 96, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.layer(self.embed(ids), src_mask=mask, is_causal=True))


def perplexities(model, loader) -> list[float]:
    model.eval()
    with torch.no_grad():
        ids = next(iter(loader))
        loss = nn.functional.cross_entropy(model.module(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    model.train()
    mine = loss.exp().item()
    all_ = [None] * dist.get_world_size()
    dist.all_gather_object(all_, mine)
    return all_


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Packed(rank, 900), batch_size=8, drop_last=True)
    for epoch in range(10):
        for ids in loader:
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        values = perplexities(model, loader)
        if rank == 0:
            print(f"epoch {epoch}: {values}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
