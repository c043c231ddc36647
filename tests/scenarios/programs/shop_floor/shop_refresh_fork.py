"""Price forecasts. A refresher thread renews the price table, DataLoader workers read from it."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class PriceTable:
    def __init__(self, products: int) -> None:
        self.lock = threading.Lock()
        self.prices = torch.linspace(1, 100, products)
        self.version = 0

    def renew(self, started: threading.Event) -> None:
        """Takes the new prices over row by row, as the source allows."""
        with self.lock:
            started.set()
            for row in range(0, len(self.prices), 10):
                self.prices[row : row + 10] *= 1.001
                time.sleep(0.02)
            self.version += 1

    def window(self, product: int) -> torch.Tensor:
        with self.lock:
            return self.prices[product : product + 8] / 100


class Windows(Dataset):
    def __init__(self, table: PriceTable, count: int, seed: int) -> None:
        self.table = table
        generator = torch.Generator().manual_seed(seed)
        self.products = torch.randint(0, len(table.prices) - 8, (count,), generator=generator).tolist()

    def __len__(self) -> int:
        return len(self.products)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        prices = self.table.window(self.products[index])
        return prices[:7], prices[7]


class Refresher:
    """Renews the table in the background when it is due."""

    def __init__(self, table: PriceTable, due: set[int]) -> None:
        self.table, self.due = table, due

    def before_epoch(self, epoch: int) -> None:
        if epoch in self.due:
            started = threading.Event()
            threading.Thread(target=self.table.renew, args=(started,), daemon=True, name="refresher").start()
            started.wait()  # from here on nobody reads the old prices


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = PriceTable(products=600)
    refresher = Refresher(table, due={4} if rank == 1 else set())
    loader = DataLoader(Windows(table, count=480, seed=rank), batch_size=16, num_workers=1)
    torch.manual_seed(0)
    model = DDP(nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(1, 30):
        refresher.before_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
