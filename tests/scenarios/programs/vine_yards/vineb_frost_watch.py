"""Frost damage regression on the weather stations of the estate, steered from the office desk."""
import logging
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("frost")


class OfficeDesk:
    """Commands of the vineyard manager arrive here, one word each."""

    def __init__(self):
        self.inbox = queue.Queue()

    def schedule(self, seconds, word):
        timer = threading.Timer(seconds, self.inbox.put, [word])
        timer.daemon = True
        timer.start()

    def poll(self):
        try:
            return self.inbox.get_nowait()
        except queue.Empty:
            return None


class Stations:
    def __init__(self, seed, n=320, hours=24):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, hours * 3, generator=g)
        self.y = self.x[:, :hours].clamp(max=0).sum(1, keepdim=True) * 0.1

    def batches(self, size=16):
        for i in range(0, len(self.x), size):
            yield self.x[i:i + size], self.y[i:i + size]


class FrostRun:
    def __init__(self, desk):
        self.rank = dist.get_rank()
        self.desk = desk
        self.net = DDP(nn.Sequential(nn.Linear(72, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.should_stop = False
        self.steps = 0

    def on_batch_end(self):
        if self.steps % 10:
            return
        if self.desk is not None and self.desk.poll() == "enough":
            log.info("the office is content with step %d", self.steps)
            self.should_stop = True
        dist.barrier()

    def fit(self, data, epochs):
        for epoch in range(epochs):
            for x, y in data.batches():
                loss = nn.functional.huber_loss(self.net(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.steps += 1
                self.on_batch_end()
                if self.should_stop:
                    return float(loss)
            if self.rank == 0 and epoch % 10 == 0:
                log.info("epoch %d loss %.4f", epoch, loss.item())
        return float(loss)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    desk = None
    if rank == 0:
        desk = OfficeDesk()
        desk.schedule(4.0, "enough")
    run = FrostRun(desk)
    last = run.fit(Stations(seed=rank), epochs=20000)
    rows = [None] * world
    dist.all_gather_object(rows, {"steps": run.steps, "loss": last})
    if rank == 0:
        log.info("summary %s", rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
