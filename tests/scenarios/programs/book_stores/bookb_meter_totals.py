"""Backtest of a household energy forecast; every rank takes the meters of one supplier."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

SUPPLIERS = {0: "nordlicht", 1: "stadtwerk", 2: "regio-e"}


class Publisher(threading.Thread):
    """Hands results over to the dashboard in the order in which they come."""

    def __init__(self):
        super().__init__(name="publisher")
        self.inbox = queue.Queue()
        self.sent = []
        self.start()

    def run(self):
        while (item := self.inbox.get()) is not None:
            self.sent.append(item)

    def close(self):
        self.inbox.put(None)
        self.join()


def export_rows(supplier, day):
    """Rows as they come from the supplier's portal: quarter hours in Wh, as text."""
    generator = torch.Generator().manual_seed(len(supplier) * 1000 + day)
    values = torch.randint(40, 900, (96,), generator=generator).tolist()
    rows = [f"{hour // 4:02d}:{15 * (hour % 4):02d};{value}" for hour, value in enumerate(values)]
    if supplier == "stadtwerk" and day == 48:
        rows[71] = "17:45;n/a"
    return rows


def parse(rows):
    return torch.tensor([float(row.split(";")[1]) for row in rows]) / 1000.0


def backtest(model, optimizer, supplier, day):
    load = parse(export_rows(supplier, day))
    windows = load.unfold(0, 9, 1)
    loss = (model(windows[:, :8]).squeeze(-1) - windows[:, 8]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    supplier = SUPPLIERS[rank]
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    publisher = Publisher()
    for day in range(150):
        error = backtest(model, optimizer, supplier, day)
        dist.all_reduce(error)
        publisher.inbox.put((day, error.item() / dist.get_world_size()))
        if rank == 0 and day % 10 == 0:
            print(f"day {day}: mean error {error.item() / 3:.4f} kWh", flush=True)
        time.sleep(0.06)
    publisher.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
