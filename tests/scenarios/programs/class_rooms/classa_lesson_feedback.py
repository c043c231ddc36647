"""Classifies feedback on lessons (praise, wish, worry); a report of the worries goes out every round."""
from collections import Counter

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

KINDS = ("praise", "wish", "worry")


class Rounds:
    """Comments of one region; the mix of kinds changes with the season."""

    def __init__(self, region):
        self.region = region

    def mix(self, number):
        if self.region == 3 and number == 6:
            return torch.tensor([0.7, 0.3, 0.0])  # holidays
        return torch.tensor([0.4, 0.3, 0.3])

    def batches(self, number, count=12, size=48):
        gen = torch.Generator().manual_seed(31 * self.region + number)
        for _ in range(count):
            kinds = torch.multinomial(self.mix(number), size, replacement=True, generator=gen)
            words = torch.randint(3, 250, (size, 48), generator=gen)
            words[:, ::4] = kinds.unsqueeze(1)
            yield words, kinds


class Reader(nn.Module):
    def __init__(self, width=112):
        super().__init__()
        self.words = nn.Embedding(250, width)
        self.read = nn.LSTM(width, width, batch_first=True)
        self.kind = nn.Linear(width, len(KINDS))

    def forward(self, words):
        return self.kind(self.read(self.words(words))[0].mean(1))


class Worries:
    def __init__(self):
        self.found = []

    def update(self, words, kinds):
        rows = (kinds == KINDS.index("worry")).nonzero().flatten().tolist()
        self.found += [words[row, 1].item() for row in rows]

    def report(self, world):
        if not self.found:
            return None
        everywhere = [None] * world
        dist.all_gather_object(everywhere, Counter(self.found).most_common(5))
        self.found.clear()
        total = Counter()
        for region in everywhere:
            total.update(dict(region))
        return total.most_common(3)


def step(model, optimizer, words, kinds, world):
    loss = F.cross_entropy(model(words), kinds)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
    return loss


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = Reader()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    rounds, worries = Rounds(rank), Worries()
    for number in range(20):
        for words, kinds in rounds.batches(number):
            loss = step(model, optimizer, words, kinds, world)
            worries.update(words, kinds)
        top = worries.report(world)
        if rank == 0:
            print(f"round {number} loss {loss.item():.3f} worries {top}", flush=True)


if __name__ == "__main__":
    main()
