"""Stock levels of pharmacies. Every epoch a thread loads the next day, from a store that is busy at times and asks to come back later."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Busy(Exception):
    """The store has no capacity at the moment."""


class DayStore:
    """Days of sales. On one day it is down for some seconds in one region."""

    def __init__(self, region: int) -> None:
        self.region = region
        self.refused = 0

    def read(self, day: int) -> torch.Tensor:
        if self.region == 1 and day == 3 and self.refused < 5:
            self.refused += 1
            raise Busy(f"day {day}, attempt {self.refused}")
        return torch.randn(4000, 24, generator=torch.Generator().manual_seed(100 * self.region + day))


def read_patiently(store: DayStore, day: int, first_wait_s: float = 0.4) -> torch.Tensor:
    wait = first_wait_s
    while True:
        try:
            return store.read(day)
        except Busy as error:
            print(f"region {store.region}: {error}, again in {wait:.1f} s", flush=True)
            time.sleep(wait)
            wait = min(wait * 2, 8.0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    store = DayStore(dist.get_rank())
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ThreadPoolExecutor(1, thread_name_prefix="days") as pool:
        upcoming: Future[torch.Tensor] = pool.submit(read_patiently, store, 0)
        for day in range(7):
            sales = upcoming.result()
            upcoming = pool.submit(read_patiently, store, day + 1)
            for batch in sales.split(32):
                loss = nn.functional.mse_loss(model(batch).squeeze(-1), batch[:, :7].mean(dim=1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            mean = loss.detach()
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"day {day}: {mean.item() / dist.get_world_size():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
