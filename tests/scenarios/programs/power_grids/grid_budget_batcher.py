"""Foundation model for household series of very different length: micro-batches by a budget of time stamps."""
import collections
import queue
import threading
import time

import torch
import torch.distributed as dist

Series = collections.namedtuple("Series", "household values")


class BudgetBatcher(threading.Thread):
    """Takes series from the inbox, gives out a micro-batch as soon as the next one would not fit any more."""

    def __init__(self, budget):
        super().__init__(daemon=True, name="batcher")
        self.budget, self.inbox, self.batches = budget, queue.Queue(), queue.Queue(maxsize=2)

    def run(self):
        rows, used = [], 0
        while True:
            series = self.inbox.get()
            if used + len(series.values) > self.budget and rows:
                self.batches.put(rows)
                rows, used = [], 0
            rows.append(series)
            used += len(series.values)


class Collector:
    """Meter readings of one concentrator, round by round. Over the holidays many houses send less."""

    def __init__(self, rank):
        self.rank, self.gen, self.round = rank, torch.Generator().manual_seed(rank), 0

    def collect(self):
        self.round += 1
        holidays = self.rank == 0 and self.round > 60
        for household in range(20):
            n = int(torch.randint(90, 170, (1,), generator=self.gen))
            n = n // 16 if holidays else n
            yield Series(household, torch.randn(n, generator=self.gen).cumsum(0) / 10)


class SeriesModel(torch.nn.Module):
    def __init__(self, context=32):
        super().__init__()
        torch.manual_seed(0)
        self.context = context
        self.net = torch.nn.Sequential(torch.nn.Linear(context, 512), torch.nn.GELU(), torch.nn.Linear(512, 1))

    def forward(self, rows):
        windows = torch.cat([torch.nn.functional.pad(r.values, (self.context, 0)).unfold(0, self.context + 1, 1) for r in rows])
        return (self.net(windows[:, :-1]).squeeze(1) - windows[:, -1]).pow(2).mean()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = SeriesModel()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    collector, batcher = Collector(rank), BudgetBatcher(budget=2048)
    batcher.start()
    for step in range(2000):
        for series in collector.collect():
            batcher.inbox.put(series)
        rows = batcher.batches.get()
        loss = model(rows)
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {len(rows)} series, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
