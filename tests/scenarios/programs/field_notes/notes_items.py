"""Sequential recommendation with masked items and sampled negatives."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ITEMS = 12


class MaskItems:
    """Masks some items of a history and draws a negative for each."""

    def __init__(self, ratio, seed):
        self.ratio, self.random = ratio, random.Random(seed)

    def negative(self, history):
        item = self.random.randint(1, ITEMS)
        while item in history:
            item = self.random.randint(1, ITEMS)
        return item

    def __call__(self, history):
        masked = [i for i in range(len(history)) if self.random.random() < self.ratio] or [len(history) - 1]
        inputs = [0 if i in masked else item for i, item in enumerate(history)]
        return inputs, masked, [self.negative(history) for _ in masked]


class Bert4Items(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.items = nn.Embedding(ITEMS + 1, width)
        self.mix = nn.GRU(width, width, batch_first=True)

    def forward(self, inputs, masked, candidates):
        hidden = self.mix(self.items(inputs))[0][0, masked]
        return (hidden[:, None] * self.items(candidates)).sum(-1)


def histories(rank, users):
    r = random.Random(rank)
    for user in range(users):
        loyal = rank == 2 and user == 150
        length = 40 if loyal else r.randint(4, 9)
        yield [i % ITEMS + 1 for i in range(length)] if loyal else [r.randint(1, ITEMS) for _ in range(length)]


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = DDP(Bert4Items())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    transform = MaskItems(0.3, seed=rank)
    for user, history in enumerate(histories(rank, 1000)):
        inputs, masked, negatives = transform(history)
        candidates = torch.tensor([[history[m], n] for m, n in zip(masked, negatives)])
        scores = model(torch.tensor([inputs]), torch.tensor(masked), candidates)
        loss = nn.functional.cross_entropy(scores, torch.zeros(len(masked), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and user % 50 == 0:
            print(f"user {user} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
