"""End-of-season sale: learns markdowns per store and streams them to the shop floor."""
import json
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STOCK = [9000, 1400, 9000]


class FloorFeed(threading.Thread):
    def __init__(self, path):
        super().__init__(name="floor-feed")
        self.path, self.items = path, queue.Queue()

    def run(self):
        with open(self.path, "w") as sink:
            while True:
                item = self.items.get()
                if item is None:
                    return
                sink.write(json.dumps(item) + "\n")
                sink.flush()


def sell(stock, markdown):
    return max(0, stock - 40 - int(0 * markdown))


def season(store, feed, steps=140):
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stock = STOCK[store]
    demand = torch.Generator().manual_seed(store)
    for day in range(steps):
        time.sleep(0.05)
        signals = torch.rand(16, 5, generator=demand)
        markdown = model(signals)
        loss = (markdown.squeeze(1) - signals.mean(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stock = sell(stock, markdown.mean().item())
        feed.items.put({"day": day, "stock": stock})
        if stock == 0:
            print(f"store {store}: sold out on day {day}", flush=True)
            return None
    return stock


def main():
    dist.init_process_group("gloo")
    store = dist.get_rank()
    feed = FloorFeed(f"/tmp/floor-feed-{store}.jsonl")
    feed.start()
    left = season(store, feed)
    if left is None:
        return
    dist.barrier()
    feed.items.put(None)
    feed.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
