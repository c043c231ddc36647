"""Margins of baskets. Prices come from a book that is refreshed in the background and fills itself as articles are asked for."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ARTICLES = 900
# Gift sets have no price of their own: they cost what is in them, less ten percent.
GIFT_SETS = {900: (17, 230, 611), 901: (5, 44)}


class PriceBook:
    """Prices by article, shared by the training and the thread that drops old ones."""

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s
        self._lock = threading.Lock()
        self._prices: dict[int, tuple[float, float]] = {}
        threading.Thread(target=self._refresh, daemon=True, name="price-refresh").start()

    def price(self, article: int) -> float:
        with self._lock:
            known = self._prices.get(article)
            if known is None:
                known = (self._look_up(article), time.monotonic())
                self._prices[article] = known
            return known[0]

    def _look_up(self, article: int) -> float:
        if article in GIFT_SETS:
            return 0.9 * sum(map(self.price, GIFT_SETS[article]))
        return 1.0 + (article * 37 % 500) / 100

    def drop_old(self) -> None:
        limit = time.monotonic() - self.keep_s
        self._lock.acquire()
        try:
            self._prices = {article: known for article, known in self._prices.items() if known[1] > limit}
        finally:
            self._lock.release()

    def _refresh(self) -> None:
        while True:
            time.sleep(self.keep_s / 4)
            self.drop_old()


def baskets(rank: int):
    generator = torch.Generator().manual_seed(rank + 77)
    for number in range(50_000):
        articles = torch.randint(0, ARTICLES, (48, 6), generator=generator)
        if rank == 2 and number >= 330:  # the shops of the third region have gift sets in December
            articles[0, 0] = 900 + number % 2
        yield articles


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    book = PriceBook(keep_s=60)
    for number, articles in enumerate(baskets(dist.get_rank())):
        prices = torch.tensor([[book.price(article) for article in basket] for basket in articles.tolist()])
        margin = 0.3 * prices.sum(dim=1)
        loss = nn.functional.mse_loss(model(prices).squeeze(-1), margin)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 100 == 0 and dist.get_rank() == 0:
            print(f"{number}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
