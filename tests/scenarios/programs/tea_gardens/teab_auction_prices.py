"""Price model for the Mombasa and Colombo tea auctions; each rank follows one broker's catalogue."""
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

GRADES = {"BP1": 0, "PF1": 1, "PD": 2, "D1": 3, "OP": 4, "FBOP": 5, "BOPF": 6}


class Ticker:
    """Sends price lines to the trading floor's board from a thread of its own."""

    def __init__(self):
        self.lines = queue.Queue()
        self.shown = []
        self.thread = threading.Thread(target=self._pump, name="ticker")
        self.thread.start()

    def _pump(self):
        while (line := self.lines.get()) is not None:
            self.shown.append(line)

    def show(self, line):
        self.lines.put(line)

    def close(self):
        self.lines.put(None)
        self.thread.join()


def catalogue(broker, sale):
    g = torch.Generator().manual_seed(100 * sale + broker)
    names = list(GRADES)
    picks = torch.randint(0, len(names), (16,), generator=g).tolist()
    lots = [(names[i], float(torch.rand((), generator=g))) for i in picks]
    if broker == 1 and sale == 45:
        lots[9] = ("GFBOP", 0.71)
    return lots


def encode(lots):
    rows = torch.zeros(len(lots), len(GRADES) + 1)
    for row, (grade, weight) in zip(rows, lots):
        row[GRADES[grade]] = 1.0
        row[-1] = weight
    return rows


def currency_noise(n):
    return torch.linalg.svdvals(torch.randn(n, 110, 110)).mean() / 100


def trade(ticker):
    broker = dist.get_rank()
    torch.manual_seed(2)
    model = DistributedDataParallel(torch.nn.Linear(len(GRADES) + 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for sale in range(400):
        rows = encode(catalogue(broker, sale))
        price = 2.0 + rows[:, -1:] * 3 + currency_noise(12)
        loss = (model(rows) - price).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ticker.show(f"sale {sale}: {loss.item():.3f}")
        if broker == 0 and sale % 20 == 0:
            print("sale", sale, "mae", round(loss.item(), 3), flush=True)


def main():
    dist.init_process_group("gloo")
    ticker = Ticker()
    trade(ticker)
    ticker.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
