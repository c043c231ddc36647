"""Next-purchase model; the catalogue is refreshed in the background, and batches come from worker processes."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Catalogue:
    """Prices by item. Readers and the refresh take turns."""

    def __init__(self, items=300):
        self.turn = threading.Lock()
        self.busy = threading.Event()
        self.prices = {item: 1.0 + item % 17 for item in range(items)}

    def price(self, item):
        with self.turn:
            return self.prices[item]

    def _refresh(self):
        with self.turn:
            self.busy.set()
            fresh = {}
            for item, price in self.prices.items():
                time.sleep(0.004)  # one request of the price service
                fresh[item] = price * 1.01
            self.prices = fresh
        self.busy.clear()

    def refresh(self):
        threading.Thread(target=self._refresh, name="catalogue", daemon=True).start()
        self.busy.wait()


class Purchases(Dataset):
    def __init__(self, catalogue, size=160):
        self.catalogue, self.size = catalogue, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        item = (index * 13) % 300
        return torch.tensor([index / self.size, self.catalogue.price(item) / 20]), item % 5


class Epochs:
    def __init__(self, rank):
        self.rank, self.catalogue = rank, Catalogue()
        self.loader = DataLoader(
            Purchases(self.catalogue), batch_size=8, num_workers=2, multiprocessing_context="fork"
        )
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 5)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def run(self, epoch):
        for features, group in self.loader:
            time.sleep(0.05)
            loss = nn.functional.cross_entropy(self.model(features), group)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        if self.rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
            if epoch % 2 == 1:
                self.catalogue.refresh()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    epochs = Epochs(dist.get_rank())
    for epoch in range(6):
        epochs.run(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
