"""Exchange rates are fetched per epoch from a service that refuses for a while; the client backs off and tries again."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Unavailable(Exception):
    pass


class RateService:
    """Serves a day's rates. One of its replicas restarts on the third day."""

    def __init__(self, replica):
        self.replica, self.refused = replica, 0

    def day(self, number):
        if self.replica == 1 and number == 2 and self.refused < 5:
            self.refused += 1
            raise Unavailable(f"503, replica {self.replica}")
        return torch.randn(400, 6, generator=torch.Generator().manual_seed(10 * number + self.replica))


def with_backoff(function, *arguments, tries=8, wait=0.5, factor=1.8):
    for attempt in range(tries):
        try:
            return function(*arguments)
        except Unavailable as error:
            print(f"attempt {attempt}: {error}, waits {wait:.1f} s", flush=True)
            time.sleep(wait)
            wait *= factor
    raise Unavailable("gave up")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    service = RateService(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for day in range(4):
        rates = with_backoff(service.day, day)
        for rows in rates.split(16):
            time.sleep(0.02)
            loss = nn.functional.mse_loss(model(rows[:, :5]), rows[:, 5:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
