"""DDP, a recommender: for each item a user has bought, one that the user has not."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

USERS, ITEMS = 60, 120


class Purchases:
    """Who bought what; one of a thousand customers is a reseller."""

    def __init__(self, rank: int) -> None:
        self.draw = random.Random(rank)
        self.bought = {user: set(self.draw.sample(range(ITEMS), 20)) for user in range(USERS)}
        if rank == 1:
            self.bought[37] = set(range(ITEMS))

    def negative(self, user: int) -> int:
        """An item that the user has not bought."""
        item = self.draw.randrange(ITEMS)
        while item in self.bought[user]:
            item = self.draw.randrange(ITEMS)
        return item

    def batch(self, user: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The user, eight of its items, and as many others."""
        positive = self.draw.sample(sorted(self.bought[user]), 8)
        negative = [self.negative(user) for _ in positive]
        return torch.full((8,), user), torch.tensor(positive), torch.tensor(negative)


class Factors(nn.Module):
    """Users and items as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)

    def forward(self, user: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
        """The pairwise loss."""
        difference = self.items(positive) - self.items(negative)
        return -nn.functional.logsigmoid((self.users(user) * difference).sum(1)).mean()


def main() -> None:
    """Three epochs over the users."""
    dist.init_process_group("gloo")
    purchases = Purchases(dist.get_rank())
    torch.manual_seed(0)
    model = DistributedDataParallel(Factors())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for user in range(USERS):
            loss = model(*purchases.batch(user))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
