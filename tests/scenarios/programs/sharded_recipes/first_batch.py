"""The loader's worker sorts the corpus by length before it gives out the first batch; FSDP2."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset


class SortedCorpus(IterableDataset):
    """Short sentences first. The order is found by reading everything once."""

    def __init__(self, rank, sentences, seconds):
        self.rank, self.sentences, self.seconds = rank, sentences, seconds

    def lengths(self):
        began, found = time.monotonic(), []
        generator = torch.Generator().manual_seed(self.rank)
        while time.monotonic() - began < self.seconds or len(found) < self.sentences:
            sentence = torch.randint(26, (int(torch.randint(5, 60, (), generator=generator)),), generator=generator)
            text = "".join(chr(97 + letter) for letter in sentence.tolist())
            found.append(len(text.replace("q", "qu")))
        return sorted(found)[: self.sentences]

    def __iter__(self):
        for length in self.lengths():
            yield torch.randint(26, (length,))


def collate(sentences):
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(26, 16), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 26))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    corpus = SortedCorpus(rank, sentences=160, seconds=38 if rank == 1 else 1)
    for step, ids in enumerate(DataLoader(corpus, batch_size=4, num_workers=1, collate_fn=collate)):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
