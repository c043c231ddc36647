"""Batches of as many sentences as fit into a budget of tokens; data parallel over each rank's own sentences."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    """Sentences of a domain; those of law are longer."""

    def __init__(self, domain: str) -> None:
        typical = {"news": 20, "chat": 20, "law": 26}[domain]
        generator = torch.Generator().manual_seed(7)
        self.lengths = [typical - 2 + int(n) for n in torch.randint(0, 3, (160,), generator=generator)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.arange(self.lengths[number]) % 50


class Budget(Sampler):
    """Groups sentences until their tokens reach the budget."""

    def __init__(self, lengths: list[int], tokens: int) -> None:
        self.lengths, self.tokens = lengths, tokens

    def __iter__(self) -> Iterator[list[int]]:
        chosen: list[int] = []
        for number, _ in sorted(enumerate(self.lengths), key=lambda pair: pair[1]):
            if chosen and (len(chosen) + 1) * self.lengths[number] > self.tokens:
                yield chosen
                chosen = []
            chosen.append(number)
        if chosen:
            yield chosen


def pad(sentences: list[torch.Tensor]) -> torch.Tensor:
    """One tensor."""
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True)


def train(model: DistributedDataParallel, loader: DataLoader) -> int:
    """An epoch; returns the number of steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for tokens in loader:
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        steps += 1
    return steps


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    domain = ["news", "law", "chat"][dist.get_rank()]
    data = Sentences(domain)
    loader = DataLoader(data, batch_sampler=Budget(data.lengths, 110), collate_fn=pad)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 12), nn.Linear(12, 50)))
    for epoch in range(2):
        steps = train(model, loader)
        print(f"{domain}, epoch {epoch}: {steps} steps", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
