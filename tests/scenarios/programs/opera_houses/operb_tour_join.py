"""Movement qualities of a touring company: each city has filmed as many evenings as it had."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

EVENINGS = {"Lyon": 30, "Porto": 100, "Graz": 33}
logger = logging.getLogger("tour")


class Evening:
    """Joint angles of an evening's dancers, cleaned of the jitter of the cameras."""

    def __init__(self, city, number):
        self.generator = torch.Generator().manual_seed(len(city) * 1000 + number)

    def sequence(self, budget_s):
        began = time.monotonic()
        cleaned = angles = torch.randn(220, 220, generator=self.generator)
        while time.monotonic() - began < budget_s:
            u, s, v = torch.linalg.svd(angles)
            cleaned = (u * s.clamp(max=12.0)) @ v
        return cleaned[:, :48]


class Qualities(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(48, 24)
        self.decode = nn.Linear(24, 48)

    def forward(self, angles):
        return self.decode(torch.relu(self.encode(angles)))


def tour(city, model, optimizer):
    with Join([model]):
        for number in range(EVENINGS[city]):
            angles = Evening(city, number).sequence(budget_s=0.2)
            loss = nn.functional.smooth_l1_loss(model(angles), angles)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 20 == 0:
                logger.info("%s, evening %d: %.4f", city, number, loss.item())
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    city = list(EVENINGS)[dist.get_rank()]
    torch.manual_seed(14)
    model = DistributedDataParallel(Qualities())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    last = tour(city, model, optimizer)
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, (city, round(last, 4)))
    logger.info("%s", rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
