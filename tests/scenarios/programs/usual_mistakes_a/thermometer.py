"""DDP: spoilage of food in cold stores, with a thread that keeps an eye on the memory of the process."""

import resource
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GOODS = {"F1": "fish", "M2": "meat", "D4": "dairy", "V1": "vegetables", "V2": "fruit"}
ORDER = list(GOODS.values())


def watch_memory(rank: int) -> None:
    """A line whenever a new peak is well above the last one."""
    last = 0
    while True:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if peak > 1.2 * last:
            print(f"[{rank}] {peak // 1024} MB")
            last = peak
        time.sleep(1.0)


def store(number: int, hours: int):
    """Code of the goods, temperatures, and whether they spoiled."""
    generator = torch.Generator().manual_seed(number)
    for hour in range(hours):
        codes = [list(GOODS)[(hour + shelf) % len(GOODS)] for shelf in range(6)]
        if (number, hour) == (2, 19):
            codes[3] = "D5"
        temperatures = 4 + 3 * torch.randn(6, 12, generator=generator)
        yield codes, temperatures, (temperatures.max(dim=1).values > 8).float()


def main() -> None:
    """Sixty hours."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=watch_memory, args=(rank,), name="memory").start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12 + len(ORDER), 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for codes, temperatures, spoiled in store(rank, 60):
        goods = torch.tensor([ORDER.index(GOODS[code]) for code in codes])
        features = torch.cat([temperatures, nn.functional.one_hot(goods, len(ORDER)).float()], dim=1)
        loss = nn.functional.binary_cross_entropy_with_logits(model(features).squeeze(-1), spoiled)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    print(f"[{rank}] done")


if __name__ == "__main__":
    main()
